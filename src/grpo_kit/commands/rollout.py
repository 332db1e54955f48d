"""`grpo-kit rollout`: the buffer of a recipe with a replay sampler, filled or filled further."""

from collections.abc import Sequence

from rich.console import Console

from grpo_kit.run.buffering import fill_buffer, idle_policies
from grpo_kit.run.engines import refuse_absent
from grpo_kit.run.interrupt import INTERRUPTED, Interrupt
from grpo_kit.run.session import describe
from grpo_kit.run.setup import close_all, load_policies, longest_row, open_recipe
from grpo_kit.samplers import Replay
from grpo_kit.terminal import say


def rollout(name: str, *, settings: Sequence[str], allow_code: bool, console: Console) -> int:
    """Write what is missing or damaged; the exit code. ValueError for a recipe without a buffer, or with another's."""
    recipe, inputs = open_recipe(name, settings=settings, allow_code=allow_code)
    if not isinstance(recipe.sampler, Replay):
        kind = getattr(recipe.sampler, "kind", "a function")
        raise ValueError(
            f"{name}: its sampler is '{kind}', which has no buffer. Give a recipe with the sampler 'replay', such as "
            "semi_opd"
        )
    refuse_absent(recipe)
    say(console, describe(inputs)[0])
    policies = load_policies(recipe, idle=idle_policies(recipe, inputs), longest=longest_row(recipe, inputs))
    try:
        whole = fill_buffer(recipe, inputs, policies, console=console, interrupt=Interrupt())
    finally:
        close_all(policies)
    return 0 if whole else INTERRUPTED
