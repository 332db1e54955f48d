"""Formulas, sentences and tables as text and as Markdown."""

from grpo_kit.explain.page import Formula, Section, Table, as_markdown, as_text

PAGE = [
    Section(
        title="One",
        blocks=(
            Formula(symbol="A_i", latex=r"\frac{r_i}{2}", words="half"),
            Formula(symbol=r"\rho_{it}", latex=" + ".join(["e^{d_{it}}"] * 6), words="long"),
            Formula(symbol=r"\theta", words="alone"),
            "A sentence on $A_i$.",
        ),
    ),
    Section(title="Two", blocks=(Table(headings=("name", "what"), rows=(("a", "x | y"), ("long", r"$\rho_i$"))),)),
]


def test_text():
    long = " + ".join(["e^(d_it)"] * 6)
    assert as_text("Title", PAGE).splitlines() == [
        "Title",
        "",
        "One",
        "  A_i = r_i / 2  half",
        f"  \N{GREEK SMALL LETTER RHO}_it = {long}",
        "                 long",
        "  \N{GREEK SMALL LETTER THETA}              alone",
        "  A sentence on A_i.",
        "",
        "Two",
        "  name  what",
        "  a     x | y",
        "  long  \N{GREEK SMALL LETTER RHO}_i",
    ]


def test_markdown():
    assert as_markdown("Title", PAGE).splitlines() == [
        "# Title",
        "",
        "## One",
        "",
        r"- $A_i = \frac{r_i}{2}$: half",
        r"- $\rho_{it} = " + " + ".join(["e^{d_{it}}"] * 6) + "$: long",
        r"- $\theta$: alone",
        "",
        "- A sentence on $A_i$.",
        "",
        "## Two",
        "",
        "| name | what |",
        "|---|---|",
        "| a | x \\| y |",
        r"| long | $\rho_i$ |",
    ]


def test_wide_text_is_wrapped_and_nothing_is_cut():
    words = " ".join(f"word{number}" for number in range(80))
    blocks = (words, Table(headings=("a", "b"), rows=(("x", words),)), Formula(symbol="L", latex="1", words=words))
    text = as_text("Title", [Section(title="One", blocks=blocks)])
    assert max(map(len, text.splitlines())) <= 110
    assert " ".join(text.split()).count("word79") == 3
    assert [each for each in text.split() if each.startswith("word")] == words.split() * 3
