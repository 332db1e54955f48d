"""What of a training must be kept so that it goes on as if it had never stopped: taken down, and put back."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from grpo_kit.buffers import refresh
from grpo_kit.checkpoints.store import CheckpointError
from grpo_kit.checkpoints.tree import pack
from grpo_kit.loop import Training
from grpo_kit.policies import Policy
from grpo_kit.recipe import Recipe
from grpo_kit.samplers import Replay


def state_of(training: Training) -> dict[str, Any]:
    """The state between two steps, by parts; weights that nothing moves are not in it."""
    loop = {
        "step": training.step,
        "generator": training.generator.get_state(),
        "prompts": training.prompts.state(),
        "memory": training.memory.states,
        "skips": training.skips.used,
        "buffer": refresh.state_of(folder) if (folder := buffer_of(training.recipe)) else None,
        "versions": {name: policy.version for name, policy in training.policies.items()},
    }
    weights = {f"policy-{name}": dict(moving(training, name)) for name in movable(training)}
    optimizers = {f"optimizer-{name}": own.state() for name, own in training.learners.items()}
    return {"loop": loop, **weights, **optimizers}


@torch.no_grad()
def restore(training: Training, parts: Mapping[str, Any]) -> None:
    """Put a state back into a training of the same recipe; CheckpointError where it is that of another."""
    expected = {"loop", *(f"policy-{name}" for name in movable(training))}
    expected |= {f"optimizer-{name}" for name in training.learners}
    if set(parts) != expected:
        raise CheckpointError(f"it holds {', '.join(sorted(parts))}, and the recipe has {', '.join(sorted(expected))}")
    for name in movable(training):
        held = parts[f"policy-{name}"]
        weights = dict(moving(training, name))
        if set(weights) != set(held):
            raise CheckpointError(f"policy '{name}' has other weights: {_apart(set(weights), set(held))}")
        for key, weight in weights.items():
            if weight.shape != held[key].shape or weight.dtype != held[key].dtype:
                raise CheckpointError(
                    f"policy '{name}': {key} is {tuple(weight.shape)} {weight.dtype} and was "
                    f"{tuple(held[key].shape)} {held[key].dtype}"
                )
            weight.copy_(held[key])
    loop = parts["loop"]
    for name, version in loop["versions"].items():
        training.policies[name].version = version
    for name, learner in training.learners.items():
        learner.restore(parts[f"optimizer-{name}"])
    training.generator.set_state(loop["generator"])
    try:
        training.prompts.restore(loop["prompts"])
        if loop["buffer"] is not None:
            refresh.put_back(str(buffer_of(training.recipe)), loop["buffer"])
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    training.memory.states.clear()
    training.memory.states.update(loop["memory"])
    training.skips.used = loop["skips"]
    training.step = loop["step"]


def buffer_of(recipe: Recipe) -> str | None:
    """The buffer that steps write anew, if there is one."""
    sampler = recipe.sampler
    return sampler.buffer if isinstance(sampler, Replay) and sampler.refresh is not None else None


def refuse_what_cannot_be_kept(training: Training) -> None:
    """CheckpointError where a part remembers what no checkpoint can hold."""
    try:
        pack(training.memory.states)
    except TypeError as error:
        raise CheckpointError(f"what a part remembers: {error}") from None


def movable(training: Training) -> list[str]:
    """The policies that learn or follow."""
    recipe = training.recipe
    return [name for name in recipe.policies if name in recipe.learners or recipe.policies[name].follows is not None]


def moving(training: Training, name: str) -> list[tuple[str, Tensor]]:
    """The weights of such a policy that steps move, tied ones once: what learns, or what a follower has of its own."""
    policy: Policy = training.policies[name]
    follows = training.recipe.policies[name].follows
    if follows is None:
        return [(key, weight) for key, weight in policy.model.named_parameters() if weight.requires_grad]
    shared = {id(weight) for weight in training.policies[follows].model.parameters()}
    return [(key, weight) for key, weight in policy.model.named_parameters() if id(weight) not in shared]


def _apart(one: set[str], other: set[str]) -> str:
    return ", ".join(sorted(one ^ other)[:5])
