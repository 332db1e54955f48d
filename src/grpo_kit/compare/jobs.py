"""The runs of a comparison: which there are, the folder of each, and what is known of it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from grpo_kit.compare.plan import HeldOut, Plan, held_out_of, settings_of, shown
from grpo_kit.disk import write_text
from grpo_kit.run.folder import read_metrics

JOB, RESULT, FAILURE, LOG = "job.json", "result.json", "failure.json", "log.txt"
State = Literal["waiting", "ended", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One run, as its worker process reads it.

    Attributes:
        folder: of this run alone: its job, its log, the run folder `run`, a replay sampler's buffer, its result.
        recipe: the recipe file.
        settings: put over it.
        held_out: the questions asked at the end; None in tuning.
        train: whether there are steps, or only the questions.
        tuning: whether it helps to choose a point, so that it may not see the held-out questions.
        allow_code: whether the recipe may name functions.
        label: the run in a line of progress.
        steps: how many the run has.
    """

    folder: Path
    recipe: str
    settings: tuple[str, ...]
    held_out: HeldOut | None
    train: bool
    allow_code: bool
    tuning: bool = False
    label: str = ""
    steps: int = 0

    @property
    def state(self) -> State:
        """Whether it has a result; a failure may be tried again."""
        if (self.folder / RESULT).exists():
            return "ended"
        return "failed" if (self.folder / FAILURE).exists() else "waiting"

    @property
    def steps_done(self) -> int:
        """Steps that its metrics have so far."""
        if self.state == "ended":
            return self.steps
        file = self.folder / "run" / "metrics.jsonl"
        return max(0, file.read_bytes().count(b"\n") - 1) if file.exists() else 0

    def write(self) -> None:
        """Leave it for its worker."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / JOB, json.dumps(asdict(self) | {"folder": str(self.folder)}, indent=1) + "\n")

    def refuse_another(self) -> None:
        """ValueError where the folder has a run of another job, whose result would be taken for this one's."""
        if not (self.folder / JOB).exists():
            return
        before = Job.read(self.folder)
        changed = sorted({*before.settings} ^ {*self.settings})
        changed += ["held_out"] if before.held_out != self.held_out else []
        if changed:
            raise ValueError(
                f"{self.folder} has a run of another plan ({'; '.join(changed)} differ). Remove that folder to run it "
                "anew, or compare into a new --out."
            )

    @classmethod
    def read(cls, folder: Path) -> "Job":
        """The job that was left in a folder."""
        found: dict[str, Any] = json.loads((folder / JOB).read_text(encoding="utf-8"))
        own = found.pop("held_out")
        held_out = None if own is None else HeldOut(**own | {"set": tuple(own["set"])})
        settings = tuple(found.pop("settings"))
        return cls(**found | {"folder": folder, "settings": settings, "held_out": held_out})

    def result(self) -> dict[str, Any]:
        """What the worker measured."""
        return json.loads((self.folder / RESULT).read_text(encoding="utf-8"))

    def failure(self) -> str:
        """Why it has no result, in a line."""
        return json.loads((self.folder / FAILURE).read_text(encoding="utf-8"))["reason"]

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of its run."""
        return read_metrics(self.folder / "run")


@dataclass(frozen=True, kw_only=True, slots=True)
class Jobs:
    """Makes the jobs of a plan.

    Attributes:
        plan: what is compared.
        root: folder of the comparison; each arm's recipe file is in its `recipes/`.
        matched: values of the keys that all arms share.
        steps: steps of each arm's recipe.
        allow_code: see `Job`.
    """

    plan: Plan
    root: Path
    matched: Mapping[str, Any]
    steps: Mapping[str, int] = field(default_factory=dict)
    allow_code: bool = False

    def tuning(self) -> Iterator[tuple[str, int, Job]]:
        """Arm, number of its point, and job, seed after seed, so that arms are interleaved."""
        assert self.plan.tuning is not None
        for seed in self.plan.tuning.seeds:
            for name, arm in self.plan.tuned.items():
                for number, point in enumerate(arm.points):
                    folder = self.root / "tuning" / name / f"point-{number}" / f"seed-{seed}"
                    yield name, number, self._job(folder, name, point, seed, tuning=True)

    def reported(self, chosen: Mapping[str, int]) -> Iterator[tuple[str, int, Job]]:
        """Arm, seed and job of the runs to report, with each arm's chosen point; seed after seed."""
        for seed in self.plan.seeds:
            for name, arm in self.plan.arms.items():
                folder = self.root / "runs" / name / f"seed-{seed}"
                yield name, seed, self._job(folder, name, arm.points[chosen.get(name, 0)], seed)

    def _job(self, folder: Path, name: str, point: Mapping[str, Any], seed: int, *, tuning: bool = False) -> Job:
        plan, arm = self.plan, self.plan.arms[name]
        # A control has no steps, so it is chosen by questions: those of its recipe, which are not the held-out ones.
        asks = not tuning or not arm.train
        return Job(
            folder=folder,
            recipe=str(self.root / "recipes" / f"{name}.toml"),
            settings=tuple(settings_of(plan, arm, self.matched, point, seed, tuning=tuning)),
            held_out=held_out_of(plan, point, seed) if asks else None,
            train=arm.train,
            tuning=tuning,
            allow_code=self.allow_code,
            label=f"{name} {f'({shown(point)}) ' if tuning else ''}seed {seed}",
            steps=self.steps.get(name, 0) if arm.train else 0,
        )
