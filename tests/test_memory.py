"""States of parts with memory, kept by place."""

from dataclasses import dataclass

import pytest

from grpo_kit.memory import Memory


@dataclass(frozen=True)
class Counter:
    """Adds up what it is given."""

    start: int = 0

    def init(self):
        return self.start

    def __call__(self, number, state):
        return state + number, state + number


def test_a_part_without_memory_is_called_as_it_is():
    memory = Memory()
    assert memory.call("here", lambda a, b: a + b, 1, 2) == 3
    assert memory.states == {}


def test_states_are_kept_by_place():
    memory = Memory()
    assert [memory.call("one", Counter(), 2), memory.call("one", Counter(), 3)] == [2, 5]
    assert memory.call("two", Counter(start=10), 1) == 11
    assert memory.under("a").call("one", Counter(), 7) == 7
    assert memory.states == {"one": 5, "two": 11, "a.one": 7}


def test_a_state_that_is_false_is_not_forgotten():
    memory = Memory({"here": 0})
    assert memory.call("here", Counter(start=5), 1) == 1


@dataclass(frozen=True)
class Forgetful(Counter):
    """Returns what it is given, and no state."""

    def __call__(self, found):
        return found


@pytest.mark.parametrize("found", [[1, 2], (1, 2, 3)])
def test_a_part_that_does_not_return_its_state_is_named(found):
    said = (
        rf"^a\.one: a part with `init` takes .* returns \(value, state\); got {type(found).__name__}\. Return the two"
    )
    with pytest.raises(ValueError, match=said):
        Memory().under("a").call("one", Forgetful(), found)
