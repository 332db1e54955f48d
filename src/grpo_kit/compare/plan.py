"""What is compared: arms, seeds, the held-out questions, and how learning rates are found, written before any run."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from grpo_kit.explain.options import toml
from grpo_kit.parts import Name, table

Seed = Annotated[int, Field(ge=0, lt=2**32)]
Settings = tuple[Annotated[str, Field(pattern=r"^[^=]+=")], ...]
"""`a.b=c` each, as `--set` takes them; `{seed}` in one stands for the run's seed."""
TEMPERATURE = "held_out.temperature"
"""What a grid may vary beside keys of the recipe."""
OWN_KEYS = ("seed", "name")
"""Keys of a recipe that a comparison sets itself."""


@table
class HeldOut:
    """The questions that trained policies are compared on; none that the run itself was evaluated on is among them.

    They are asked once, after the last step, so that the best of several evaluations is never what is compared.

    Attributes:
        questions: how many.
        samples: completions a question; the accuracy is their mean, and pass@k is up to this k.
        temperature: of these completions, above 0; the greedy accuracy stands beside it.
        set: settings that make the recipe's `[evaluation.data]` theirs, `evaluation.data.seed=1` for example.
    """

    questions: Annotated[int, Field(ge=1)] = 2000
    samples: Annotated[int, Field(ge=1)] = 8
    temperature: Annotated[float, Field(gt=0)] = 1.0
    set: Settings = ()


@table
class Tuning:
    """How each arm's grid is searched, on seeds of its own: the point with the highest mean of a metric is taken.

    Attributes:
        seeds: of the runs that choose; none is among the seeds that are reported.
        metric: `<policy>/<metric>` of the last evaluation in the run, `small/accuracy` for example, on the recipe's
            own evaluation questions and never on the held-out ones.
        set: settings for these runs alone.
    """

    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    metric: Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")]
    set: Settings = ()


@table
class Arm:
    """One side of a comparison: a recipe with settings.

    Attributes:
        recipe: a file or the name of a shipped recipe.
        set: settings over those of the plan.
        grid: values tried in tuning, by key; `held_out.temperature` is one, too. Every combination is a point.
        metric: the tuning's metric for this arm, where it is another one.
        train: False leaves the policies as they are and asks them the held-out questions: a control.
        against: the arm, or arms, that this one is held against. By default it is the first one that has the policy;
            but an arm that others name here is held against none.
    """

    recipe: str
    set: Settings = ()
    grid: Mapping[str, Annotated[tuple[Any, ...], Field(min_length=1)]] = Field(default_factory=dict)
    metric: Annotated[str, Field(pattern=r"^[^/]+/[^/]+$")] | None = None
    train: bool = True
    against: Name | tuple[Name, ...] = ()

    @property
    def bases(self) -> tuple[Name, ...]:
        """The arms that it names to be held against."""
        return (self.against,) if isinstance(self.against, str) else self.against

    @property
    def points(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values, in order; one empty point without a grid."""
        return [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]


@table
class Plan:
    """A whole comparison.

    Attributes:
        name: of its folder.
        hypotheses: what is expected, in words, written down before the runs.
        seeds: every arm runs with each of them; differences are paired by seed.
        arms: what is compared, by name; see `Arm.against` for the differences.
        set: settings for every arm.
        match: keys of the recipe whose value in the first arm's recipe holds for all arms that do not set it.
        held_out: what they are compared on.
        tuning: how the arms' grids are searched.
        equivalence: by `<policy>/<metric>`, the margin within which an arm counts as equal to what it is held against.
    """

    name: Name
    hypotheses: tuple[str, ...] = ()
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)]
    arms: Annotated[Mapping[Name, Arm], Field(min_length=1)]
    set: Settings = ()
    match: tuple[str, ...] = ("steps", "prompts_per_step")
    held_out: HeldOut = Field(default_factory=HeldOut)
    tuning: Tuning | None = None
    equivalence: Mapping[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)

    @property
    def tuned(self) -> dict[str, Arm]:
        """The arms with more than one point to choose from."""
        return {name: arm for name, arm in self.arms.items() if len(arm.points) > 1}

    def pairs(self, among: Sequence[str]) -> list[tuple[str, str]]:
        """Of the arms given, each one that is held against another one of them, and that one."""
        named = {base for arm in self.arms.values() for base in arm.bases}
        found: list[tuple[str, str]] = []
        for name in among:
            bases = self.arms[name].bases or (() if name in named else (among[0],))
            found += [(name, base) for base in bases if base != name and base in among]
        return found

    def metric_of(self, arm: str) -> str:
        """By what an arm is tuned."""
        assert self.tuning is not None
        return self.arms[arm].metric or self.tuning.metric


def settings_of(
    plan: Plan, arm: Arm, matched: Mapping[str, Any], point: Mapping[str, Any], seed: int, *, tuning: bool = False
) -> list[str]:
    """What is put over an arm's recipe for one run: matched keys, the plan's, the arm's, the point's, the seed."""
    own = [*plan.set, *arm.set, *(plan.tuning.set if tuning and plan.tuning else ())]
    named = {key.partition("=")[0].strip() for key in own}
    common = [_setting(key, value) for key, value in matched.items() if key not in named]
    chosen = [_setting(key, value) for key, value in point.items() if key != TEMPERATURE]
    return [text.replace("{seed}", str(seed)) for text in (*common, *own, *chosen, f"seed={seed}")]


def held_out_of(plan: Plan, point: Mapping[str, Any], seed: int) -> HeldOut:
    """The held-out questions of one run: at the point's temperature, where it has one."""
    settings = tuple(text.replace("{seed}", str(seed)) for text in plan.held_out.set)
    return replace(plan.held_out, temperature=point.get(TEMPERATURE, plan.held_out.temperature), set=settings)


def shown(point: Mapping[str, Any]) -> str:
    """A point in words."""
    return ", ".join(f"{key.rpartition('.')[2]} = {value}" for key, value in point.items())


def mistakes_of(plan: Plan) -> Iterator[str]:
    """What is wrong with a plan by itself, a line each."""
    yield from _repeated("seeds", plan.seeds)
    yield from _own_keys("set", _keys(plan.set))
    yield from _own_keys("held_out.set", _keys(plan.held_out.set))
    yield from _own_keys("tuning.set", _keys(plan.tuning.set) if plan.tuning else ())
    for name, arm in plan.arms.items():
        yield from _own_keys(f"arms.{name}", (*_keys(arm.set), *arm.grid))
        for value in arm.grid.get(TEMPERATURE, ()):
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                yield f"arms.{name}.grid.{TEMPERATURE}: {value!r}. Give numbers above 0."
        for base in arm.bases:
            if base == name or base not in plan.arms:
                others = ", ".join(other for other in plan.arms if other != name) or "none"
                yield f"arms.{name}.against: {base}, which is no other arm. Known: {others}."
        if not arm.train and set(arm.grid) - {TEMPERATURE}:
            yield f"arms.{name}.grid: an arm that is not trained has only {TEMPERATURE} to vary."
    if plan.tuning is None and plan.tuned:
        yield f"tuning: missing, and there is a grid in {', '.join(plan.tuned)}. Add [tuning] with seeds and metric."
    if plan.tuning is not None:
        yield from _repeated("tuning.seeds", plan.tuning.seeds)
        if not plan.tuned:
            yield "tuning: no arm has a grid with more than one point. Remove [tuning], or give a grid."
        if both := sorted({*plan.seeds} & {*plan.tuning.seeds}):
            said = ", ".join(map(str, both))
            yield f"tuning.seeds: {said} is among seeds, which are then no fresh ones. Take others."


def default_folder(name: str) -> Path:
    """Where a comparison goes without --out."""
    return Path("runs") / f"compare-{name}"


def _repeated(place: str, seeds: Sequence[int]) -> Iterator[str]:
    if len(set(seeds)) < len(seeds):
        yield f"{place}: one is named twice. Each seed is one run an arm."


def _keys(settings: Settings) -> list[str]:
    return [text.partition("=")[0].strip() for text in settings]


def _own_keys(place: str, keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        if key in OWN_KEYS:
            yield f"{place}: {key} is set by the comparison itself. Remove it."


def _setting(key: str, value: Any) -> str:
    return f"{key}={toml(value)}"
