"""Numbers as texts write them, exactly."""

import time
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from grpo_kit.rewards.number import read_number

READ = {
    "5": "5",
    "+5": "5",
    "- 5": "-5",
    "\u22125": "-5",
    "007": "7",
    "5.": "5",
    ".5": "1/2",
    "5.0.": "5",
    "1,234": "1234",
    "1,234,567.5": "2469135/2",
    "12,34,567": "1234567",
    "1 234 567": "1234567",
    "1\u202f234": "1234",
    "1{,}234": "1234",
    "1\\,234": "1234",
    "1_000": "1000",
    "3/4": "3/4",
    "6/8": "3/4",
    "-3/4": "-3/4",
    "3/-4": "-3/4",
    r"\frac{3}{4}": "3/4",
    r"-\dfrac{3}{4}": "-3/4",
    r"\frac34": "3/4",
    r"1\frac{1}{2}": "3/2",
    "1 1/2": "3/2",
    "-1 1/2": "-3/2",
    "½": "1/2",
    "2½": "5/2",
    "1.5/2.5": "3/5",
    "50%": "1/2",
    r"50\%": "1/2",
    "12.5 %": "1/8",
    "1e3": "1000",
    "1.5E-2": "3/200",
    r"1.5 \times 10^{3}": "1500",
    "1.5\u00d710^3": "1500",
    "10^{-2}": "1/100",
    "$12": "12",
    r"\$12.50": "25/2",
    "-$3": "-3",
    "€3": "3",
    "$12$": "12",
    r"\(7\)": "7",
    "**18**": "18",
    "x = 5": "5",
    r"\text{12}": "12",
    "\uff13\uff14": "34",
    "٣": "3",
}
NOT_READ = [
    "",
    "-",
    "2x",
    "x",
    "3 or 4",
    "1,23",
    "1,2345",
    "1 23",
    "12 34",
    "1.2.3",
    "0x10",
    "10²",
    "five",
    "1/0",
    "0/0",
]
NOT_READ += ["(1, 2)", "3, 4", "1e", "e3", "inf", "nan", "5 km", "5 million", "--5", "1/2/3", "1e99999999999999999999"]
NOT_READ += [r"\sqrt{4}", r"\frac{1}{x}", "5 = x", "7" * 20_001]


@pytest.mark.parametrize("text", READ)
def test_read(text):
    number = read_number(text)
    assert number is not None
    assert Fraction(number.top) / Fraction(number.bottom) == Fraction(READ[text])


@pytest.mark.parametrize("text", NOT_READ, ids=lambda text: text[:12])
def test_not_read(text):
    assert read_number(text) is None


def test_percent_may_be_ignored_and_units_dropped():
    assert read_number("50%", percent_is_hundredth=False).equals(read_number("50"))
    for text in ("5 km", "5km", r"5\text{ km}", r"5\ \mathrm{km}", "5 KM"):
        assert read_number(text, units=("m", "km")).equals(read_number("5")), text
    assert read_number("5 km", units=("m",)) is None
    assert read_number("5 k", units=("km",)) is None


FRACTIONS = st.fractions(max_denominator=10**9)


@given(FRACTIONS, FRACTIONS)
def test_equality_is_that_of_fractions(one, other):
    first, second = read_number(str(one)), read_number(str(other))
    assert first.equals(second) == (one == other)
    assert first.equals(read_number(f"{one.numerator * 7}/{one.denominator * 7}"))


@given(FRACTIONS, FRACTIONS, st.integers(0, 1000), st.integers(0, 1000))
def test_nearness_is_that_of_fractions(one, other, absolute, relative):
    absolute, relative = absolute / 64, relative / 1024  # exact as floats
    near = abs(one - other) <= max(Fraction(absolute), Fraction(relative) * abs(other))
    found = read_number(str(one)).is_near(read_number(str(other)), absolute=absolute, relative=relative)
    assert found == near


def test_a_tolerance_means_what_is_written_and_its_bound_is_inside():
    assert read_number("3.1").is_near(read_number("3"), absolute=0.1, relative=0.0)
    assert not read_number("3.1000000000000000000001").is_near(read_number("3"), absolute=0.1, relative=0.0)
    assert read_number("-99").is_near(read_number("-100"), absolute=0.0, relative=0.01)
    assert not read_number("-98.9").is_near(read_number("-100"), absolute=0.0, relative=0.01)


def test_huge_numbers_take_no_time():
    started = time.perf_counter()
    huge, digits = read_number("1e999999999"), "7" * 19_000
    assert huge.equals(read_number("10e999999998"))
    assert not huge.equals(read_number("1"))
    assert not huge.is_near(read_number("1"), absolute=0.5, relative=0.5)
    assert huge.is_near(read_number("1.1e999999999"), absolute=0.0, relative=0.1)
    assert read_number(digits).equals(read_number(f"{digits}.000"))
    assert not read_number(digits).equals(read_number(digits[:-1] + "8"))
    assert read_number(f"{digits[:9000]}/{digits[:9000]}").equals(read_number("1"))
    for text in (
        "1," * 9000,
        " " * 19_000 + "x",
        r"\frac{" * 3000,
        "1 " * 9000,
        "-" * 19_000,
        "{" * 19_000,
        "1/" * 9000,
    ):
        assert read_number(text) is None
    assert time.perf_counter() - started < 2
