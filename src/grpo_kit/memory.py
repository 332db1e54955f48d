"""What parts remember from one batch to the next, kept outside the parts and carried by the loop."""

from dataclasses import dataclass, field
from typing import Any

from grpo_kit.offers import call_with


@dataclass(slots=True)
class Memory:
    """The states of parts with memory, keyed by where the part stands in the recipe.

    A part with memory has `init() -> State` and takes a keyword `state`, returning `(value, state)`; ValueError when it
    does not return the two. One without is called as it is. States are plain data, so that a checkpoint can hold them.
    """

    states: dict[str, Any] = field(default_factory=dict)
    place: str = ""

    def under(self, place: str) -> "Memory":
        """The same states, for parts that stand under a place of the recipe."""
        return Memory(self.states, f"{self.place}{place}.")

    def call(self, place: str, part: Any, *inputs: Any, **offers: Any) -> Any:
        """Call a part with what it asks for, handing it its state when it has one and keeping the new one."""
        if not hasattr(part, "init"):
            return call_with(part, *inputs, **offers)
        key = self.place + place
        state = self.states[key] if key in self.states else part.init()
        found = call_with(part, *inputs, state=state, **offers)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ValueError(
                f"{key}: a part with `init` takes the keyword `state` and returns (value, state); got "
                f"{type(found).__name__}. Return the two, or remove `init`"
            )
        value, self.states[key] = found
        return value
