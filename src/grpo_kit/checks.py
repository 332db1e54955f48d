"""What no part can see alone: mistakes between the parts of a recipe, and between a recipe and the world."""

from collections.abc import Collection, Iterator, Mapping

from transformers import PreTrainedTokenizerBase

from grpo_kit.learner import Learner
from grpo_kit.parts import did_you_mean
from grpo_kit.recipe import Recipe
from grpo_kit.rewards import OnPolicyKD, Python, SoftOverlong
from grpo_kit.rewards.functions import resolve, signature_fault
from grpo_kit.sampling_checks import Finding, group_size, of_sampling
from grpo_kit.terms import DivergenceTerm, EntropyBonus, PolicyGradient


def cross_checks(recipe: Recipe, *, allow_code: bool = False, removed: Collection[str] = ()) -> list[str]:
    """Every mistake that can be seen without loading anything, a line each.

    `removed` are the places of a faulty recipe that had to be taken out to read the rest. What is judged by one of
    them is not reported: it may only follow from the mistake there.
    """
    found = [*_undefined(recipe), *_policies(recipe), *_rewards(recipe), *_code(recipe, allow_code)]
    found += [*of_sampling(recipe), *_evaluation(recipe)]
    for name, learner in recipe.learners.items():
        found += [(f"learners.{name}.{line}", *places) for line, *places in _learner(recipe, name, learner)]
    return [line for line, *places in found if not any(_overlap(gone, place) for gone in removed for place in places)]


def _overlap(one: str, other: str) -> bool:
    """Whether one place lies in the other."""
    return all(a == b or "*" in (a, b) for a, b in zip(one.split("."), other.split("."), strict=False))


def _undefined(recipe: Recipe) -> Iterator[Finding]:
    """Names of policies and rewards that nothing defines."""
    for name in recipe.learners:
        if name not in recipe.policies:
            unknown = _unknown("policy", name, recipe.policies)
            yield f"learners.{name}: {unknown} A learner has its policy's name.", f"policies.{name}"
    for place, policies in recipe.readers().items():
        for policy in dict.fromkeys(policies):
            trained_here = place.startswith("learners.") and policy in recipe.learners
            if policy not in recipe.policies and not trained_here:
                yield f"{place}: {_unknown('policy', policy, recipe.policies)}", f"policies.{policy}", f"{place}.policy"
    for place, weights in _reward_weights(recipe).items():
        for name in weights:
            if name not in recipe.rewards:
                yield f"{place}: {_unknown('reward', name, recipe.rewards)}", f"rewards.{name}"


def _reward_weights(recipe: Recipe) -> dict[str, Mapping[str, float]]:
    used = {f"learners.{name}.rewards": learner.rewards for name, learner in recipe.learners.items()}
    if recipe.selection is not None:
        used["selection.rewards"] = recipe.selection.rewards
    if recipe.refill is not None:
        used["refill.rewards"] = recipe.refill.rewards
    if recipe.curriculum is not None:
        used["curriculum.reward"] = {recipe.curriculum.reward: 1.0}
    if recipe.evaluation is not None:
        used["evaluation.reward"] = {recipe.evaluation.reward: 1.0}
    return used


def _policies(recipe: Recipe) -> Iterator[Finding]:
    if not recipe.learners:
        yield (
            "learners: there is none, so nothing would be trained. Add a table [learners.NAME], NAME a policy.",
            "learners",
        )
    for name in recipe.learners:
        if name in recipe.policies and recipe.policies[name].dtype == "float16":
            yield (f"policies.{name}.dtype: float16 loses small gradients of a live policy. Use bfloat16 or float32.",)
        if name in recipe.policies and recipe.policies[name].follows is not None:
            yield (f"learners.{name}: policy '{name}' is a follower and cannot learn. Give it a model of its own.",)
    for name, spec in recipe.policies.items():
        if spec.follows is not None and spec.follows not in recipe.learners:
            live = _names(recipe.learners)
            yield (
                f"policies.{name}.follows: '{spec.follows}' is not a live policy. Live: {live}.",
                f"learners.{spec.follows}",
            )
    read = {policy for policies in recipe.readers().values() for policy in policies}
    for name in recipe.policies:
        if name not in read | set(recipe.learners):
            unused = f"policies.{name}: no sampler, reward or learner uses it. Remove it, or use it."
            yield unused, f"policies.{name}.model", f"learners.{name}", "sampler.policy", "rewards", "learners.*.terms"


def _rewards(recipe: Recipe) -> Iterator[Finding]:
    used = _reward_weights(recipe).values()
    for name, reward in recipe.rewards.items():
        if not any(name in weights for weights in used):
            unused = f"rewards.{name}: no learner, selection or evaluation uses it. Remove it, or give it a weight."
            places = ("learners.*.rewards", "selection.rewards", "refill.rewards", "curriculum", "evaluation.reward")
            yield unused, *places
        longest = getattr(recipe.sampler, "max_new_tokens", None)
        if isinstance(reward, SoftOverlong) and longest and longest <= reward.max_length - reward.cache:
            never = (
                f"rewards.{name}: no completion passes max_length - cache = {reward.max_length - reward.cache} tokens "
                f"(sampler.max_new_tokens = {longest}), so it is always 0. Lower max_length or raise cache."
            )
            yield never, "sampler.max_new_tokens"
        if isinstance(reward, OnPolicyKD):
            writer = getattr(recipe.sampler, "policy", reward.student)
            if reward.teacher == reward.student:
                yield (f"rewards.{name}: teacher and student are the same policy, so the reward is always 0.",)
            elif reward.student != writer and writer in recipe.policies:
                silent = f"'{reward.student}' writes no token ('{writer}' samples), so the reward is always 0"
                yield f"rewards.{name}.student: {silent}. Use '{writer}'.", "sampler.policy"


def _code(recipe: Recipe, allow_code: bool) -> Iterator[Finding]:
    """Code that the recipe names: only with permission, and functions must exist."""
    for name, spec in recipe.policies.items():
        if spec.trust_remote_code and not allow_code:
            yield (f"policies.{name}.trust_remote_code: runs code of the model; allow it with --allow-code.",)
    for place, reward in _every_reward(recipe):
        if not isinstance(reward, Python) or not isinstance(reward.function, str):
            continue
        if not allow_code:
            yield (
                f"{place}.function: '{reward.function}' is code to run; allow it with --allow-code if you trust "
                "this recipe.",
            )
            continue
        try:
            fault = signature_fault(resolve(reward.function))
        except ValueError as error:
            yield (f"{place}.function: {error}.",)
        else:
            if fault:
                yield (f"{place}.function: '{reward.function}': {fault}.",)


def _every_reward(recipe: Recipe) -> Iterator[tuple[str, object]]:
    """Every reward with its place, those inside another (`grading`) too."""
    for name, outer in recipe.rewards.items():
        place, reward = f"rewards.{name}", outer
        while reward is not None:
            yield place, reward
            place, reward = f"{place}.grading", getattr(reward, "grading", None)


def _evaluation(recipe: Recipe) -> Iterator[Finding]:
    if recipe.evaluation is None:
        return
    if recipe.evaluation.data == recipe.data:
        same = "evaluation.data: these are the training questions. Give the keys that differ, for example "
        yield same + 'data = { split = "eval" }.', "data", "evaluation.data"
    reward = recipe.rewards.get(recipe.evaluation.reward)
    if getattr(reward, "reads", ()):
        yield (
            f"evaluation.reward: '{recipe.evaluation.reward}' compares policies and says nothing of right or wrong. "
            "Name a reward that is 1 for a correct completion.",
        )


def _learner(recipe: Recipe, name: str, learner: Learner) -> Iterator[Finding]:
    """Mistakes of one learner; the lines begin below its table."""
    here = f"learners.{name}"
    gradients = {key: term for key, term in learner.terms.items() if isinstance(term, PolicyGradient)}
    for key, term in gradients.items():
        yield from _policy_gradient(recipe, f"{here}.terms.{key}", term)
    if gradients and not learner.rewards:
        needed = "rewards: a policy gradient needs rewards. Give weights, for example rewards = { correctness = 1.0 }."
        yield needed, f"{here}.rewards"
    if learner.rewards and all(isinstance(term, DivergenceTerm | EntropyBonus) for term in learner.terms.values()):
        idle = "rewards: no term of this learner reads rewards. Remove them, or add a policy_gradient term."
        yield idle, f"{here}.terms"
    for key, value in learner.rewards.items():
        if not value:
            yield (f"rewards.{key}: weight 0 does nothing. Remove it.",)
    once = learner.epochs == learner.mini_batches == 1
    for key, term in learner.terms.items():
        if term.weight == 0:
            yield (f"terms.{key}.weight: 0 does nothing. Remove the term.",)
        if isinstance(term, DivergenceTerm) and term.to == name and once:
            idle = f"terms.{key}.to: a divergence to itself has gradient 0 at the first update. Name another policy."
            yield idle, f"{here}.epochs", f"{here}.mini_batches"
    rows = group_size(recipe)[1] * recipe.prompts_per_step
    if learner.mini_batches > rows:
        few = f"mini_batches: {learner.mini_batches} of {rows} rows a step; use at most one a row."
        yield few, "prompts_per_step", "sampler.samples", "selection"


def _policy_gradient(recipe: Recipe, place: str, term: PolicyGradient) -> Iterator[Finding]:
    samples, keep = group_size(recipe)
    key = place.partition(".terms.")[2]
    compares = getattr(term.advantage, "compares_rows", False)
    if compares and samples < 2:
        alone = (
            f"terms.{key}.advantage: compares the rows of a group, and sampler.samples = {samples} gives groups of "
            "one: every advantage would be 0. Set sampler.samples to 2 or more."
        )
        yield alone, "sampler.samples", f"{place}.advantage"
    elif compares and term.baseline == "selected" and keep < 2:
        alone = f"terms.{key}.advantage: the selection keeps {keep} row a group, so each advantage is 0. Keep 2."
        yield alone, "selection", f"{place}.advantage", f"{place}.baseline"
    cut = getattr(recipe.sampler, "top_p", 1) < 1 or getattr(recipe.sampler, "top_k", 0) > 0
    if cut and (term.correction is not None or term.anchor == "behavior"):
        yield (
            f"terms.{key}: sampler.top_p or top_k cuts mass off, which biases quotients to the behavior policy. "
            "Sample with top_p = 1 and top_k = 0.",
        )
    if term.baseline == "sampled" and recipe.selection is None:
        same = f"terms.{key}.baseline: 'sampled' is the same as 'selected' without a [selection]. Remove it."
        yield same, "selection"


def shared_vocabulary(tokenizers: Mapping[str, PreTrainedTokenizerBase]) -> list[str]:
    """Policies that share rollouts must mean the same by each id; a mistake for each that differs from the first."""
    found: list[str] = []
    names = list(tokenizers)
    for name in names[1:]:
        first, own = tokenizers[names[0]].get_vocab(), tokenizers[name].get_vocab()
        differing = sorted(token for token in first.keys() | own.keys() if first.get(token) != own.get(token))
        if differing:
            example = differing[0]
            found.append(
                f"policies.{name}: its tokenizer differs from that of '{names[0]}' in {len(differing)} of "
                f"{len(first.keys() | own.keys())} tokens (for example {example!r}: id {first.get(example)} against "
                f"{own.get(example)}). Policies that share rollouts need the same tokenizer."
            )
    return found


def _unknown(what: str, name: str, known: Mapping[str, object]) -> str:
    return f"there is no {what} '{name}'.{did_you_mean(name, known)} Known: {_names(known)}."


def _names(table: Mapping[str, object]) -> str:
    return ", ".join(table) or "none"
