"""What a recipe is: policies + data + sampler + rewards + selection + learners. No algorithm has a name here."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from grpo_kit.data import DATA, Curriculum, Data
from grpo_kit.detail import Detail
from grpo_kit.learner import Learner
from grpo_kit.parts import Name, table
from grpo_kit.policies import PolicySpec
from grpo_kit.rewards import REWARDS, Reward
from grpo_kit.samplers import SAMPLERS, Sampler
from grpo_kit.samplers.mixed import places_of
from grpo_kit.selections import SELECTIONS, Selection, Spread
from grpo_kit.terms import details_of


@table
class SelectionSpec:
    """Which rows of each group are trained on, by all learners alike.

    Attributes:
        rule: how rows are chosen.
        rewards: weights of the reward components whose sum the rule looks at. Choosing by a sum with the distillation
            reward chooses by the large model's importance weight and biases its update.
    """

    rule: Annotated[Selection, SELECTIONS]
    rewards: Annotated[Mapping[str, float], Field(min_length=1)]


@table
class RefillSpec:
    """Sample again until a step has enough groups worth training on (dynamic sampling, DAPO: arXiv:2503.14476).

    Each round samples `prompts_per_step` prompts, new ones every time. Kept groups stay whole, in the order sampled,
    until there are `prompts_per_step` of them; more are dropped. When the tries are used up the step goes on with the
    groups there are, and without any with the last round as it is. What is kept by its rewards is no longer a fair
    sample of the prompts: metrics of the rewards are then about the kept groups.

    Attributes:
        rule: which groups are kept; it must keep or drop a group whole, that is all of its rows that have a reward, or
            none.
        rewards: weights of the reward components whose sum the rule looks at.
        tries: rounds of sampling a step at most.
    """

    rule: Annotated[Selection, SELECTIONS] = Field(default_factory=Spread)
    rewards: Annotated[Mapping[str, float], Field(min_length=1)]
    tries: Annotated[int, Field(ge=1)] = 10


@table
class EvaluationSpec:
    """How every live policy is tested on questions it is not trained on.

    Attributes:
        data: the questions; in a recipe file a table without `kind` holds only the keys that differ from `[data]`.
        reward: name of the reward component whose value 1 means correct.
        questions: how many of them, the first of the data.
        samples: completions a question at temperature 1; accuracy is their mean, pass@k with k = `samples` the share
            of questions with a correct one.
        every: steps between evaluations; always before the first step and after the last, too.
        max_new_tokens: longest completion; the sampler's by default.
        rows_per_batch: rows decoded together; the sampler's by default, 512 where it has none.
    """

    data: Annotated[Data, DATA]
    reward: str
    questions: Annotated[int, Field(ge=1)] = 256
    samples: Annotated[int, Field(ge=1)] = 8
    every: Annotated[int, Field(ge=1)] = 50
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None
    rows_per_batch: Annotated[int, Field(ge=1)] | None = None


@table
class CheckpointSpec:
    """When a run's whole state is written to `checkpoints/`, so that `grpo-kit run --resume` goes on from it.

    One is also written when a run ends early (Ctrl-C, SIGTERM) and after the last step.

    Attributes:
        every: steps between checkpoints.
        keep: the latest ones that stay; older ones are removed.
        best: a metric of `metrics.jsonl`, such as `eval/small/accuracy`: the checkpoint with the highest stays, too.
    """

    every: Annotated[int, Field(ge=1)] = 25
    keep: Annotated[int, Field(ge=1)] = 2
    best: str | None = None


@table
class Recipe:
    """A whole run.

    Attributes:
        name: of the run folder.
        steps: passes through the loop: sample, score, reward, update every learner.
        seed: decides the prompts' order, the samples, the mini-batches.
        prompts_per_step: prompts sampled a step; with a refill a round, and groups trained on a step at most.
        max_prompt_tokens: longer prompts are bad rows; with chat, the template's tokens count.
        on_bad_row: what to do about rows that cannot be used: `skip` counts and names them, `stop` ends the run before
            it starts, listing them.
        policies: the language models, by name.
        data: the prompts to train on.
        curriculum: draws prompts by their pass rates; without it every epoch has each prompt once.
        sampler: who writes completions, and how.
        rewards: reward components by name; learners, selection, refill, curriculum and evaluation refer to
            them.
        refill: samples again until enough groups are worth training on; one round without it.
        selection: which rows are trained on; all without it.
        learners: how policies learn, each under the name of the policy it trains.
        evaluation: how live policies are tested.
        checkpoints: when its state is saved.
        max_non_finite_skips: how often a run may leave out what is not finite and go on: a group of rows for a
            log-probability or reward, an optimizer step for a loss or gradient. At 0 the first one ends the run. What
            nothing can be left out of always does: weights that are not finite, and a policy that cannot be sampled.
        log_samples: completions a step kept in `samples.jsonl` with their per-token signals.
        max_log_gib: size of `samples.jsonl` in GiB above which no more are kept, which is said once; above 0.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")]
    steps: Annotated[int, Field(ge=1)]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    prompts_per_step: Annotated[int, Field(ge=1)]
    max_prompt_tokens: Annotated[int, Field(ge=1)] = 1024
    on_bad_row: Literal["skip", "stop"] = "skip"
    max_non_finite_skips: Annotated[int, Field(ge=0)] = 0
    log_samples: Annotated[int, Field(ge=0)] = 8
    max_log_gib: Annotated[float, Field(gt=0)] = 1.0
    policies: Annotated[Mapping[Name, PolicySpec], Field(min_length=1)]
    data: Annotated[Data, DATA]
    curriculum: Curriculum | None = None
    sampler: Annotated[Sampler, SAMPLERS]
    rewards: Mapping[Name, Annotated[Reward, REWARDS]] = Field(default_factory=dict)
    refill: RefillSpec | None = None
    selection: SelectionSpec | None = None
    learners: Mapping[Name, Learner] = Field(default_factory=dict)
    evaluation: EvaluationSpec | None = None
    checkpoints: CheckpointSpec = Field(default_factory=CheckpointSpec)

    def readers(self) -> dict[str, tuple[str, ...]]:
        """Everything that reads a policy, by its place in the recipe: the sampler, rewards and terms."""
        found = {"sampler": tuple(getattr(self.sampler, "reads", ()))}
        found |= {f"rewards.{name}": tuple(getattr(reward, "reads", ())) for name, reward in self.rewards.items()}
        for name, learner in self.learners.items():
            found |= {f"learners.{name}.terms.{key}": tuple(term.reads(name)) for key, term in learner.terms.items()}
        return found

    def details(self) -> dict[str, Detail]:
        """How much of each scored policy's distributions some part reads, in the order of the recipe."""
        found = {name: Detail() for name in self.scored()}
        for name, learner in self.learners.items():
            for term in learner.terms.values():
                for policy, detail in details_of(term, name).items():
                    if policy in found:  # a name that nothing defines is a mistake that the checks report
                        found[policy] |= detail
        return found

    def frozen_details(self) -> dict[str, Detail]:
        """The same of the policies that nothing moves: neither a learner nor another policy that they follow."""
        moving = {*self.learners, *(name for name, spec in self.policies.items() if spec.follows is not None)}
        return {name: detail for name, detail in self.details().items() if name not in moving}

    def scored(self) -> tuple[str, ...]:
        """The policies whose signals some part takes, in the order of the recipe.

        Writers whose sampler computes with other numerics than the trainer (`foreign_numerics`) are among them, so that
        the mismatch is measured every step; not those of a buffer, whose rows are of other weights.
        """
        wanted = {policy for place, read in self.readers().items() if place != "sampler" for policy in read}
        if not getattr(self.sampler, "supplies_signals", False):
            foreign = [own for own in places_of(self.sampler).values() if getattr(own, "foreign_numerics", False)]
            wanted |= {policy for own in foreign for policy in getattr(own, "reads", ())}
        return tuple(name for name in self.policies if name in wanted)
