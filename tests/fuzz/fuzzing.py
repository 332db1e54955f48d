"""What the fuzz tests share: how many examples, bytes that are damaged, and values of JSON."""

from copy import deepcopy
from datetime import timedelta

from hypothesis import settings, strategies as st

EXAMPLES = max(40, settings.default.max_examples)
"""Of each test; `pytest --hypothesis-profile fuzz tests/fuzz` tries thousands."""
FUZZ = settings(deadline=timedelta(seconds=10), max_examples=EXAMPLES)
"""An example that takes longer than the deadline fails: no reader may hang."""
SLOW_FUZZ = settings(FUZZ, max_examples=EXAMPLES // 4)
"""For examples that take a tenth of a second each."""

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda own: st.lists(own, max_size=4) | st.dictionaries(st.text(max_size=8), own, max_size=4),
    max_leaves=8,
)
"""What a file of JSON may hold."""


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """Bytes of which one is flipped, or with up to three spans cut, put in, or replaced, also up to the end."""
    if content and draw(st.booleans()):
        flipped = bytearray(content)
        flipped[draw(st.integers(0, len(content) - 1))] ^= draw(st.integers(1, 255))
        return bytes(flipped)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 16)) | st.just(len(content)))
        content = content[:start] + draw(st.binary(max_size=16)) + content[end:]
    return content


def check_refusal(error: ValueError) -> None:
    """A refusal in words of ours, and no other error that happens to be a ValueError, as those of decoding are."""
    assert str(error).strip()
    assert type(error) is ValueError or type(error).__module__.startswith("grpo_kit.")


def places_in(table, before=()):
    """Where there is a value in a table, tables and lists included."""
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        yield (*before, key)
        if isinstance(value, dict | list):
            yield from places_in(value, (*before, key))


@st.composite
def with_a_value_replaced(draw, table):
    """A table with one value gone or another."""
    table = deepcopy(table)
    *above, key = draw(st.sampled_from(list(places_in(table))))
    here = table
    for step in above:
        here = here[step]
    if draw(st.booleans()):
        here[key] = draw(JSON)
    else:
        del here[key]
    return table
