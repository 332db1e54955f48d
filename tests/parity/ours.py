"""Our side of the parity check: `python ours.py BATCHES RESULTS`.

Each case's recipe is read as `grpo-kit run` reads it; its advantages come from `learner_batch.freeze`, its loss and
gradient from `objective.accumulate`, of a policy whose only weights are the log-probabilities themselves.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from case import Case
from torch import Tensor

from cases import CASES
from grpo_kit import Recipe, read_recipe
from grpo_kit.batch import Behavior, Component, Experience, Rewards, Rollouts, Sampling, Writer
from grpo_kit.head import Head
from grpo_kit.learner import LiveLearner
from grpo_kit.learner_batch import freeze
from grpo_kit.memory import Memory
from grpo_kit.objective import accumulate
from grpo_kit.policies import Policy
from grpo_kit.signals import Scores, SignalKey, Signals

LEARNER = "small"


class Table(torch.nn.Module):
    """A model that is nothing but its log-probabilities of the rows."""

    def __init__(self, logprobs: Tensor) -> None:
        super().__init__()
        self.logprobs = torch.nn.Parameter(logprobs.clone())


@dataclass
class TablePolicy:
    """The policy around it, of a vocabulary of two: the words written, all of them token 0, and everything else."""

    model: Table
    device = torch.device("cpu")
    head = Head(None)
    read = Policy.read

    def micro_batches(self, rollouts, rows):
        """All rows at once."""
        return [list(rows)]

    def hidden(self, rollouts):
        """The logits log p and log(1 - p) of each token written."""
        own = self.model.logprobs[:, : rollouts.mask.shape[1]][rollouts.mask]
        return torch.stack([own, torch.log(-torch.expm1(own))], dim=1)


def with_greedy_rows(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The batch and behind it a greedy row a group, whose reward the batch has."""
    first = [batch["groups"].tolist().index(group) for group in batch["groups"].unique()]
    more = {name: values[first] for name, values in batch.items()} | {"rewards": batch["greedy"][first]}
    return {name: torch.cat([values, more[name]]) for name, values in batch.items()}


def experience(batch: Mapping[str, Tensor], recipe: Recipe) -> Experience:
    """The batch as our loop would hand it to a learner; the rewards that look at texts are the batch's own."""
    sampled = len(batch["mask"])
    if recipe.sampler.greedy:
        batch = with_greedy_rows(batch)
    mask, rows = batch["mask"], len(batch["mask"])
    by_greedy = (torch.arange(rows) >= sampled)[:, None].expand_as(mask)
    writers = [Writer(policy=LEARNER, version=0, sampling=Sampling(temperature=t)) for t in (1.0, 0.0)]
    rollouts = Rollouts(
        prompts=((0,),) * rows,
        tokens=torch.zeros_like(mask, dtype=torch.long),
        mask=mask,
        groups=batch["groups"],
        stop_reasons=tuple("length" if cut else "eos" for cut in batch["truncated"]),
        texts=("",) * rows,
        columns={},
        behavior=Behavior(writers=tuple(writers), writer=by_greedy.long(), logprobs=batch["rollout"]),
    )
    signals = {
        SignalKey(LEARNER, 0): Scores(logprobs=batch["old"]),
        SignalKey("reference", 0): Scores(logprobs=batch["reference"]),
    }
    values = {"correctness": batch["rewards"], "brief": batch["brief"]}
    rewards = {
        name: Component(values=values[name], statuses=("ok",) * rows)
        if name in values
        else part(rollouts, Signals(signals))
        for name, part in recipe.rewards.items()
    }
    return Experience(rollouts=rollouts, signals=Signals(signals), rewards=Rewards(rewards))


def result(case: Case, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Advantages, loss and gradient of one case on one batch."""
    unclipped = f"learners.{LEARNER}.optimizer.max_grad_norm=1e9"
    recipe = read_recipe(case.recipe, settings=[*case.ours, unclipped])
    settings, given = recipe.learners[LEARNER], experience(batch, recipe)
    kept = ~given.rollouts.greedy
    frozen = freeze(LEARNER, settings, given, kept, Memory())
    rows = list(frozen.numbers)
    model = Table(batch["current"][rows])
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = SimpleNamespace()
    learner = LiveLearner(LEARNER, settings, TablePolicy(model), optimizer, schedule)
    shown = accumulate(learner, frozen, range(len(rows)), step=0)
    loss = sum(term.weight * shown.losses[name] for name, term in settings.terms.items())
    found = {
        "advantages": frozen.frozen["policy"]["advantages"] * frozen.counted,
        "gradient": model.logprobs.grad,
        "counted": frozen.counted.double(),
    }
    in_place = {
        name: torch.zeros_like(batch["current"]).index_copy(0, torch.tensor(rows), v) for name, v in found.items()
    }
    return {"loss": torch.tensor(loss), **in_place}


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    batches = torch.load(sys.argv[1])
    found = {case.key: {name: result(case, batch) for name, batch in case.of(batches).items()} for case in CASES}
    torch.save(found, sys.argv[2])
