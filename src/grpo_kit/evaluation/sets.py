"""The named sets of questions: where each is on the hub, and which of its columns are problem and answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from grpo_kit.parts import did_you_mean

PROMPT_COLUMNS = ("prompt", "problem", "question")
"""What a file's column of problems may be called; the first that is there counts."""
ANSWER_COLUMNS = ("answer", "final_answer")
"""What a file's column of gold answers may be called."""
INSTRUCTION = r"Work it out step by step. Put the final answer, and nothing else, in \boxed{}."
"""What every question is followed by, unless a template is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedSet:
    """One set of questions on the hub.

    Attributes:
        path: data set on the hub.
        config: its configuration; empty where it has one only.
        split: its split.
        prompt: its column of problems.
        answer: its column of gold answers; a list of texts is joined by commas.
        extract: regular expression whose group is the gold answer within the column; empty to take all of it.
        instruction: what follows the problem in the default prompt.
        questions: how many there are.
    """

    path: str
    config: str = ""
    split: str = "test"
    prompt: str = "problem"
    answer: str = "answer"
    extract: str = ""
    instruction: str = INSTRUCTION
    questions: int


NAMED: Mapping[str, NamedSet] = MappingProxyType(
    {
        "math500": NamedSet(path="HuggingFaceH4/MATH-500", questions=500),
        "gsm8k": NamedSet(
            path="openai/gsm8k", config="main", prompt="question", extract=r"(?:.*####)?\s*(.+)", questions=1319
        ),
        "aime24": NamedSet(path="HuggingFaceH4/aime_2024", split="train", questions=30),
        "aime25": NamedSet(path="math-ai/aime25", questions=30),
        "amc23": NamedSet(path="math-ai/amc23", prompt="question", questions=40),
        "minerva": NamedSet(path="math-ai/minervamath", prompt="question", questions=272),
        "olympiadbench": NamedSet(
            path="Hothan/OlympiadBench",
            config="OE_TO_maths_en_COMP",
            split="train",
            prompt="question",
            answer="final_answer",
            questions=674,
        ),
    }
)
"""Every named set, in the order of the documentation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where `--data` points: a named set on the hub, a file, or a file that stands for a named set."""

    name: str
    named: NamedSet | None = None
    file: Path | None = None


def locate(given: str) -> Place:
    """Read one value of `--data`: `FILE`, `NAME` or `NAME=FILE`; ValueError when it is none of them.

    Example:
        >>> locate("amc23").named.path
        'math-ai/amc23'
    """
    if given in NAMED:
        return Place(name=given, named=NAMED[given])
    name, equals, file = given.partition("=")
    if equals and name in NAMED:
        if not Path(file).is_file():
            raise ValueError(f"there is no file '{file}' for '{name}' (looked from {Path.cwd()})")
        return Place(name=name, named=NAMED[name], file=Path(file))
    if Path(given).is_file():
        return Place(name=Path(given).stem, file=Path(given))
    known = f"Named sets: {', '.join(NAMED)}."
    if equals and not Path(name).suffix:
        raise ValueError(f"'{name}' in '{given}' is no named set.{did_you_mean(name, NAMED)} {known}")
    raise ValueError(f"'{given}' is no file here and no named set.{did_you_mean(given, NAMED)} {known}")
