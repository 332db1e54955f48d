"""What an evaluation will do, checked before any weights are loaded: every mistake at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from grpo_kit.config import RecipeError
from grpo_kit.data import PromptSet, encode_prompts
from grpo_kit.evaluation.models import Found, find_models
from grpo_kit.evaluation.questions import COLUMN, Asking, asked_in, own_rows, rows_of
from grpo_kit.evaluation.sets import INSTRUCTION, Place, locate
from grpo_kit.policies import PolicySpec, load_tokenizer
from grpo_kit.policies.load import device_of, position_limit
from grpo_kit.rewards import Correctness

DEFAULT_LENGTH = 1024
"""Longest completion where nothing is said and the model has the positions."""
OWN = "own questions"
"""Name of the set that a run was itself evaluated on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What was asked for, as on the command line; None leaves the choice open.

    Attributes:
        model: a run folder, a model's folder, a `.gguf` file, `tiny:small`, or a hub name.
        data: files, named sets, or `NAME=FILE`; none of them for a run's own questions.
        columns: `OURS=THEIRS` for files whose columns have unusual names.
        policy: one of a run folder's policies.
        samples: completions a question.
        temperature: 0 is greedy; None is 0 for one completion a question, else 1.
        top_p: nucleus mass kept.
        max_new_tokens: longest completion; None is 1024, or as many as the model has positions for.
        questions: the first so many of each set.
        seed: of the samples.
        asking: how questions are put.
        strict: only a boxed answer counts.
        rows_per_batch: completions decoded together.
        device: where the models compute.
        dtype: precision.
        out: file for the report.
        completions: file for every completion.
    """

    model: str
    data: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    policy: str | None = None
    samples: int = 1
    temperature: float | None = None
    top_p: float = 1.0
    max_new_tokens: int | None = None
    questions: int | None = None
    seed: int = 0
    asking: Asking = field(default_factory=Asking)
    strict: bool = False
    rows_per_batch: int = 64
    device: str = "auto"
    dtype: str | None = None
    out: Path | None = None
    completions: Path | None = None

    @property
    def heat(self) -> float:
        """The temperature."""
        return self.temperature if self.temperature is not None else float(self.samples > 1)

    def mistakes(self) -> Iterator[str]:
        """What is wrong with the numbers and the files to write."""
        least_one = {"samples": self.samples, "rows-per-batch": self.rows_per_batch}
        least_one |= {"questions": self.questions, "max-new-tokens": self.max_new_tokens}
        least_one |= {"shots": self.asking.shots}
        yield from (f"--{name} {n}: at least 1" for name, n in least_one.items() if n is not None and n < 1)
        if not 0 <= self.heat < float("inf"):
            yield f"--temperature {self.heat}: a number from 0 (greedy) up"
        if self.heat == 0 and self.samples > 1:
            yield f"--temperature 0 gives {self.samples} completions that are all the same: use --samples 1"
        if not 0 < self.top_p <= 1:
            yield f"--top-p {self.top_p}: above 0, at most 1"
        for name, path in (("out", self.out), ("completions", self.completions)):
            if path is not None and path.exists():
                yield f"--{name} {path} exists already; give a new file"
            elif path is not None and (problem := _not_writable(path)):
                yield f"--{name} {path}: {problem}"
        if not all(self.asking.stop or ()):
            yield "--stop '': an empty text ends every completion at once; remove it"
        if self.out is not None and self.out == self.completions:
            yield f"--out and --completions are both {self.out}; give two files"
        yield from (
            f"--column {given}: write prompt=THEIRS or answer=THEIRS"
            for given in self.columns
            if given.partition("=")[0] not in ("prompt", "answer") or not given.partition("=")[2]
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One model on one set, ready to be measured."""

    policy: str
    spec: PolicySpec
    data: str
    questions: PromptSet
    asking: Asking
    max_new_tokens: int


def _not_writable(path: Path) -> str | None:
    """Why a new file cannot be written there, tried out; None where it can."""
    if not path.absolute().parent.is_dir():
        return f"there is no folder {path.absolute().parent}"
    try:
        path.open("x").close()
        path.unlink()
    except OSError as error:
        return f"it cannot be written ({error.strerror})"
    return None


def plan(wanted: Wanted) -> list[Task]:
    """Find models, tokenizers and questions; RecipeError lists all that is wrong with them."""
    mistakes = list(wanted.mistakes())
    found, tokenizers = _models(wanted, mistakes)
    sources = _sources(wanted, found, mistakes)
    tasks: list[Task] = []
    for name, tokenizer in tokenizers.items():
        assert found is not None
        for data, read in sources.items():
            try:
                tasks.append(_task(wanted, name, found, tokenizer, data, read))
            except ValueError as error:
                mistakes.append(f"{data}: {error}.".replace("..", "."))
    if mistakes:
        raise RecipeError(mistakes, "eval")
    return tasks


Source = Place | Mapping[str, Any]
"""A place that `--data` names, or the table of a run's own data."""


def _models(wanted: Wanted, mistakes: list[str]) -> tuple[Found | None, dict[str, PreTrainedTokenizerBase]]:
    try:
        found = find_models(wanted.model, policy=wanted.policy, device=wanted.device, dtype=wanted.dtype)
    except ValueError as error:
        mistakes.append(str(error))
        return None, {}
    tokenizers: dict[str, PreTrainedTokenizerBase] = {}
    for name, spec in found.specs.items():
        try:
            device_of(spec)
            tokenizers[name] = load_tokenizer(spec)
        except ValueError as error:
            mistakes.append(str(error))
    return found, tokenizers


def _sources(wanted: Wanted, found: Found | None, mistakes: list[str]) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    for given in wanted.data:
        try:
            place = locate(given)
        except ValueError as error:
            mistakes.append(f"--data: {error}")
            continue
        if place.name in sources:
            mistakes.append(f"--data: two sets are called '{place.name}'; rename one of the files")
        sources[place.name] = place
    if wanted.data or found is None:
        return sources
    own = (found.recipe or {}).get("evaluation", {}).get("data")
    if own is None:
        mistakes.append("no --data is given, and this is no run with evaluation questions of its own")
    return {} if own is None else {OWN: own}


def _task(
    wanted: Wanted, name: str, found: Found, tokenizer: PreTrainedTokenizerBase, data: str, source: Source
) -> Task:
    spec = found.specs[name]
    named = source.named if isinstance(source, Place) else None
    asking = wanted.asking if found.recipe is None else wanted.asking.over(asked_in(found.recipe))
    asking = asking.resolve(tokenizer, named.instruction if named is not None else INSTRUCTION)
    columns = dict(given.split("=", 1) for given in wanted.columns if "=" in given)
    rows = rows_of(source, asking, columns) if isinstance(source, Place) else own_rows(source, asking)
    limit = position_limit(spec)
    most = len(rows) if wanted.questions is None else max(1, wanted.questions)
    judge = Correctness(column=COLUMN).row_faults
    questions = encode_prompts(
        rows,
        tokenizer,
        max_tokens=(limit or 2**31) - 1,
        needed=(COLUMN,),
        judges=(judge,),
        limit=most,
        limit_name="the model's positions less one",
    )
    longest = max(map(len, questions.ids))
    length = wanted.max_new_tokens or min(DEFAULT_LENGTH, (limit or 2**31) - longest)
    if limit is not None and longest + length > limit:
        raise ValueError(
            f"the longest prompt ({longest} tokens) and --max-new-tokens {length} need {longest + length} positions; "
            f"'{spec.model}' has {limit}. Lower --max-new-tokens"
        )
    return Task(policy=name, spec=spec, data=data, questions=questions, asking=asking, max_new_tokens=length)
