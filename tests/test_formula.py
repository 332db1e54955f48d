# ruff: noqa: RUF001
"""LaTeX of docstrings and formulas as plain text."""

import inspect
import re

import pytest

from grpo_kit.formula import name, number, plain, plain_text
from grpo_kit.roles import ROLES

PARTS = {f"{role.name}.{kind}": part for role in ROLES.values() for kind, part in role.built_in.items()}


@pytest.mark.parametrize(
    ("latex", "text"),
    [
        (r"\frac{1}{R \cdot |o_i|}", "1 / (R · |o_i|)"),
        (r"\tfrac12 d^2", "1 / 2 d^2"),
        (r"e^{\sum_{u \le t} b_{iu}}", "e^(Σ_(u ≤ t) b_iu)"),
        (r"e^{-d_{it}} - 1 + d_{it}", "e^(-d_it) - 1 + d_it"),
        (r"\mathrm{KL}(\pi_\mathrm{a} \| q)", "KL(π_a ‖ q)"),
        (r"\sum_{j \ne i} r_j", "Σ_(j ≠ i) r_j"),
        (r"\theta \leftarrow d\,\theta", "θ ← d θ"),
        (r"-\min(\rho A,\ \mathrm{clip}(\rho, 1 - \epsilon_l))", "-min(ρA, clip(ρ, 1 - ϵ_l))"),
        (r"10^{-6}", "10^-6"),
    ],
)
def test_latex_becomes_one_plain_line(latex, text):
    assert plain(latex) == text


@pytest.mark.parametrize("part", PARTS)
def test_no_docstring_keeps_latex(part):
    text = inspect.getdoc(PARTS[part])
    outside = re.sub(r"\${1,2}[^$]+\${1,2}", "", text)
    # What the prose itself has (a `\boxed{...}` in backticks) stays; what the formulas have must not.
    assert plain_text(text).count("\\") == outside.count("\\")
    assert plain_text(text).count("$") == outside.count("$")


def test_numbers_keep_what_six_digits_show():
    assert [number(value) for value in (0.2, 1 - 0.2, 1e-6, -1e-6, 1234567, float("-inf"))] == [
        "0.2",
        "0.8",
        "10^{-6}",
        "-10^{-6}",
        "1234567",
        r"-\infty",
    ]


def test_a_name_with_an_underscore_is_one_name():
    assert plain(rf"\pi_{{{name('small_2')}}}") == "π_(small_2)"
