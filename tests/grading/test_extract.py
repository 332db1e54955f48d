"""Where a completion says its final answer."""

import time

import pytest

from grpo_kit.grading import final_answer
from grpo_kit.grading.extract import last_boxed

RULE = [
    # text, final answer, final answer when strict
    (r"\boxed{12}", "12", "12"),
    (r"first \boxed{12}, no: \boxed{15}.", "15", "15"),
    (r"\boxed{\frac{1}{2}} and so on", r"\frac{1}{2}", r"\frac{1}{2}"),
    (r"\fbox{36}", "36", "36"),
    (r"\boxed 6", "6", "6"),
    (r"\boxed 42.", "42", "42"),
    (r"\boxed\frac{1}{2} holds", r"\frac{1}{2}", r"\frac{1}{2}"),
    (r"mark it with \boxed , so \boxed{7}", "7", "7"),
    (r"\\boxed{5}", "5", "5"),
    (r"\boxed{3} and then \boxed{4", "3", "3"),
    (r"\boxed{3} \boxed{}", None, None),
    (r"\boxed{}", None, None),
    (r"\boxed{\boxed{8}}", "8", "8"),
    (r"<think>\boxed{1}</think> so \boxed{2}", "2", "2"),
    (r"\boxed{1}</think> the answer is 2.", "2", None),
    (r"<think>\boxed{1} and", None, None),
    (r"\boxed{9} <think> hm", "9", "9"),
    ("The answer is 41.", "41", None),
    ("The answer is 41. Wait, 42 was given.", "41", None),
    ("The answer is $x = 7$, of course.", "x = 7", None),
    ("Answer: **58**", "58", None),
    ("**Final Answer:** 58", "58", None),
    ("The final answer is:\n58", "58", None),
    ("A: 1,234", "1,234", None),
    ("so\n#### 18", "18", None),
    ("the answer is $18.50", "$18.50", None),
    ("The answer is 3. The answer is 4.", "4", None),
    ("The answer is 3.\nBut I am not sure about that.\nReally.", None, None),
    ("There are 18 hens and 5 cows, but I", None, None),
    ("", None, None),
    ("<answer>3</answer> no, <answer> 4 </answer>", "4", None),
    (r"<answer>\boxed{5}</answer>", "5", "5"),
    ("Final Answer: The final answer is $18$. I hope it is correct.", "18", None),
    ("The answer is: $18$.\n\nI hope it is correct.", "18", None),
    ("**Final Answer**\n\n$18$", "18", None),
    ("### Final Answer\n\n18", "18", None),
    ("The final answer is:\n\n$$\n18\n$$", "18", None),
    ("The answer is 18 because there are 20.", "18", None),
    (r"\framebox{36}", "36", "36"),
]


@pytest.mark.parametrize(("text", "loose", "strict"), RULE)
def test_the_rule(text, loose, strict):
    assert final_answer(text) == loose
    assert final_answer(text, strict=True) == strict


@pytest.mark.parametrize(
    "text",
    [
        "\\" * 200_000,
        r"\boxed{" * 50_000,
        r"\boxed{" * 30_000 + "}" * 30_000,
        "\\boxed " * 50_000,
        "answer is " * 50_000,
        "**" * 100_000,
        r"\(" * 100_000 + "answer is " + r"\(" * 2000,
        "{" * 200_000,
        "<answer>" * 50_000,
    ],
)
def test_no_completion_makes_it_slow(text):
    start = time.process_time()
    final_answer(text)
    assert time.process_time() - start < 2


def test_last_boxed_reads_a_brace_as_written():
    assert last_boxed(r"\boxed{\{1,2\}}") == r"\{1,2\}"
    assert last_boxed("no box") is None
