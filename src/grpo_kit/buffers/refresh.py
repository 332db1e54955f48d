"""When a buffer is written anew by the policies as they are now, and which of its writings is in use."""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import torch
from pydantic import Field, model_validator

from grpo_kit.batch import Rollouts
from grpo_kit.buffers.cost import Cost
from grpo_kit.buffers.fill import fill
from grpo_kit.buffers.fingerprints import parameters_of, rollout_identity, score_identity
from grpo_kit.buffers.shards import release
from grpo_kit.buffers.store import Buffer
from grpo_kit.data import PromptSet
from grpo_kit.detail import Detail
from grpo_kit.offers import call_with
from grpo_kit.overlap.measure import measure
from grpo_kit.overlap.ratio import tokens_compared
from grpo_kit.parts import table
from grpo_kit.policies.policy import Policy


@table
class Refresh:
    """When a buffer is written anew, by the policies as they are then: after so many steps, or when the overlap falls.

    The overlap is the output-token overlap ratio (arXiv:2610.11291) of the student's and the teacher's 64 likeliest
    tokens, or a quarter of a smaller vocabulary, on completions that the present student writes to the first prompts of
    the buffer, one shard of them: low where training on old rows has led it to states that they do not show. The paper
    never refreshes and gives no threshold.

    Attributes:
        every: steps between writings; the first is before step `every` + 1.
        overlap_below: write anew when the overlap is below this, in (0, 1]; instead of `every`.
        check_every: steps between measurements of the overlap; with `overlap_below` alone.
    """

    every: Annotated[int, Field(ge=1)] | None = None
    overlap_below: Annotated[float, Field(gt=0, le=1)] | None = None
    check_every: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _says_when(self) -> "Refresh":
        if (self.every is None) == (self.overlap_below is None):
            raise ValueError("give either every or overlap_below, not both or none")
        if (self.overlap_below is None) != (self.check_every is None):
            raise ValueError("overlap_below and check_every belong together; give both or none")
        return self


@dataclass(kw_only=True, slots=True)
class _Run:
    """What a run in this process did with a buffer: its last step, and where and when rows were last written."""

    name: str
    step: int
    folder: Path
    written: int = 0
    held: bool = False


_RUNS: dict[str, _Run] = {}
"""By the buffer's folder; parts are plain data and hold no state."""


def in_use(folder: str) -> Buffer:
    """The buffer to read: the latest writing of the run at work, else the folder's own."""
    return Buffer(_RUNS[folder].folder if folder in _RUNS else Path(folder))


def hold(folder: str) -> None:
    """Begin a run whose replaced rows stay until `keep_only` removes them, since checkpoints may refer to them."""
    _RUNS[folder] = _Run(name=uuid4().hex[:8], step=0, folder=Path(folder), held=True)


def state_of(folder: str) -> dict[str, Any] | None:
    """What the run at work did with a buffer, as plain data; None before its first step."""
    run = _RUNS.get(folder)
    return run and {
        "name": run.name,
        "step": run.step,
        "folder": str(run.folder.relative_to(folder)),
        "written": run.written,
    }


def put_back(folder: str, state: Mapping[str, Any]) -> None:
    """Go on with a run from its state; ValueError where the rows that it used are gone."""
    used, held = Path(folder) / state["folder"], folder in _RUNS and _RUNS[folder].held
    if not Buffer(used).exists:
        raise ValueError(f"the buffer {used}, which the run used, is gone")
    _RUNS[folder] = _Run(name=state["name"], step=state["step"], folder=used, written=state["written"], held=held)


def keep_only(folder: str, states: Iterable[Mapping[str, Any] | None]) -> None:
    """Remove what the run at work wrote and neither it nor one of the states uses."""
    run = _RUNS[folder]
    used = {run.folder, *(Path(folder) / state["folder"] for state in states if state)}
    own = Path(folder) / "refreshed" / run.name
    gone = [path for path in (own.iterdir() if own.is_dir() else ()) if path not in used]
    if gone:
        release()
    for path in gone:
        shutil.rmtree(path)


def renew(
    sampler: Any,
    settings: Refresh,
    step: int,
    policies: Mapping[str, Policy],
    prompts: PromptSet,
    details: Mapping[str, Detail],
) -> dict[str, float]:
    """Before a step: write a replay sampler's buffer anew where that is due; metrics of it, its cost included.

    The rows that the initial policies wrote stay where they are. New ones are in a folder of the run's own below, whole
    before they are used; those they replace are removed. A step that is not later than the last begins another run.
    """
    run = _RUNS.get(sampler.buffer)
    if run is None or step <= run.step:
        run = _RUNS[sampler.buffer] = _Run(name=uuid4().hex[:8], step=step, folder=Path(sampler.buffer))
    run.step, metrics, cost = step, dict[str, float](), Cost()
    if settings.every is not None:
        due = step > 1 and (step - 1) % settings.every == 0
    else:
        assert settings.overlap_below is not None
        assert settings.check_every is not None
        due = step > 1 and (step - 1) % settings.check_every == 0
        if due:
            metrics["sampler/overlap"] = _overlap(sampler, step, policies, prompts, details, cost)
            due = metrics["sampler/overlap"] < settings.overlap_below
    if due:
        _write(sampler, run, step, policies, prompts, details, cost)
    metrics |= {f"flops/{policy}/renew": flops for policy, flops in cost.by_policy().items()}
    return metrics | {
        "sampler/refreshed": float(due),
        "sampler/buffer_age": float(step - max(1, run.written)),
        "sampler/tokens_renewed": float(cost.tokens),
    }


def is_frozen(policy: Policy | None) -> bool:
    """Whether a policy's scores stay true: it is not loaded at all, or nothing moves it."""
    return policy is None or (policy.version == 0 and not any(w.requires_grad for w in policy.model.parameters()))


def _write(
    sampler: Any,
    run: _Run,
    step: int,
    policies: Mapping[str, Policy],
    prompts: PromptSet,
    details: Mapping[str, Detail],
    cost: Cost,
) -> None:
    before, weights = run.folder, {name: parameters_of(policies[name]) for name in sampler.reads}
    scored = {name: detail for name, detail in details.items() if detail.storable}
    buffer = Buffer(Path(sampler.buffer) / "refreshed" / run.name / f"step-{step}")
    seed = sampler.seed + 1009 * step
    tokenizer = next(iter(policies.values())).tokenizer
    buffer.begin(
        rollout_identity(
            sampler.of,
            weights,
            tokenizer,
            prompts,
            seed=seed,
            prompts_per_shard=sampler.prompts_per_shard,
            vocabulary=min(policy.vocabulary for policy in policies.values()),
        ),
        {
            name: score_identity(parameters_of(policies[name]), detail, getattr(sampler, "temperature", 1.0))
            for name, detail in scored.items()
        },
    )
    _bring_up_to_date(sampler, policies, prompts, details)
    fill(buffer, sampler.of, prompts, policies, scored, seed=seed, max_gib=sampler.max_gib)
    cost.add_buffer(buffer, prompts, policies, scored)
    run.folder, run.written = buffer.path, step
    if before != Path(sampler.buffer) and not run.held:
        release()
        shutil.rmtree(before)


def _bring_up_to_date(
    sampler: Any, policies: Mapping[str, Policy], prompts: PromptSet, details: Mapping[str, Detail]
) -> None:
    """Let the inner sampler prepare as for a first step, so that an engine has the present weights."""
    prepare = getattr(sampler.of, "renew", None)
    if prepare is not None:
        prepare(1, policies, prompts, details)


def _overlap(
    sampler: Any,
    step: int,
    policies: Mapping[str, Policy],
    prompts: PromptSet,
    details: Mapping[str, Detail],
    cost: Cost,
) -> float:
    """The lowest overlap of the policy that learns with a teacher, on rows that it writes now."""
    few = prompts.take(range(min(len(prompts), sampler.prompts_per_shard)))
    _bring_up_to_date(sampler, policies, prompts, details)
    generator = torch.Generator().manual_seed(sampler.seed + 1009 * step)
    rollouts: Rollouts = call_with(sampler.of, few, policies, generator, details=details, epoch=0.0)
    learning = [
        policies[name] for name in sampler.reads if any(w.requires_grad for w in policies[name].model.parameters())
    ]
    if not learning or not details:
        raise ValueError(
            "sampler.refresh.overlap_below: no policy that learns writes here, or nothing reads a teacher. Use every"
        )
    student = learning[0]
    cost.add(rollouts, policies, (scored for teacher in details for scored in (student.name, teacher)))
    k = tokens_compared(student.vocabulary)
    return min(float(measure(student, policies[name], rollouts, k).values.overlap.mean()) for name in details)
