"""What a training step of a 1.5B and a 7B model costs, from counted FLOPs and bytes.

GRPO of each against CoDistill of both, and OPD of the 7B teacher to the 1.5B student against Semi-OPD.

No GPU is used: all that is not counted is an assumption, stated as a constant below. Seconds are those of one GPU that
does all of the work; on several, each with the whole model for generation, divide by their number.

Run it: python examples/experiments/cost_model.py
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import NamedTuple

PEAK_FLOPS = 989e12  # of an H100 SXM, bfloat16 without sparsity, a second
BANDWIDTH = 3.35e12  # its bytes a second
MEMORY = 80e9  # its bytes
ENGINE_MEMORY = 0.6  # share of them for weights and cache of the engine; a sharded optimizer has the rest
BYTES = 2  # of a number in bfloat16

PROMPTS = 64  # a step, as OPDHub's notes of the paper have it; all stages grow with it alike
PROMPT_TOKENS = 1024  # every prompt, read once for all of its rollouts
COMPLETION_TOKENS = 3072  # every rollout: no row ends early, and none is waited for
GRPO_ROLLOUTS = 8  # a prompt, all of them trained on
SAMPLED, KEPT = 14, 8  # CoDistill's rollouts of a prompt: written and scored, and trained on
BUFFERED = 100  # steps whose rows Semi-OPD writes at once, as many together as the cache holds
USES = (1, 2, 4, 16)  # how often a row of that buffer is trained on
UPDATE = 3  # forward passes that a forward and a backward pass cost; recomputing activations is left to the MFU
PAPER_SPEED_UP = 0.18  # of the large model, abstract of arXiv:2605.08873; what is compared there is not said


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A Qwen2.5 model by its public configuration; biases on queries, keys and values."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    tied: bool

    @property
    def kv_width(self) -> int:
        """Numbers of a token's keys in a layer."""
        return self.hidden // self.heads * self.kv_heads

    @property
    def matrix_parameters(self) -> int:
        """Those that multiply a token: the layers' matrices and the head."""
        attention = 2 * self.hidden**2 + 2 * self.hidden * self.kv_width
        return self.layers * (attention + 3 * self.hidden * self.intermediate) + self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All of them: beside the matrices biases, norms and an embedding that the head does not share."""
        small = self.layers * (self.hidden + 2 * self.kv_width + 2 * self.hidden) + self.hidden
        return self.matrix_parameters + small + (0 if self.tied else self.vocabulary * self.hidden)

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values of a token."""
        return 2 * self.layers * self.kv_width * BYTES


SMALL = Shape(layers=28, hidden=1536, heads=12, kv_heads=2, intermediate=8960, vocabulary=151936, tied=True)
LARGE = Shape(layers=28, hidden=3584, heads=28, kv_heads=4, intermediate=18944, vocabulary=152064, tied=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumptions:
    """What is neither counted nor known.

    Attributes:
        decode_share: share of the bandwidth that decoding achieves.
        mfu: share of the peak FLOP/s that prefill, scoring and updates achieve.
        concurrency: rows decoded at once where the cache holds them; 64 prompts of 8 rollouts on 8 GPUs are 64.
    """

    decode_share: float = 0.5
    mfu: float = 0.4
    concurrency: int = 64


RANGES = {"decode_share": (0.3, 0.4, 0.5, 0.6, 0.7), "mfu": (0.3, 0.4, 0.5), "concurrency": (32, 64, 128, 256, 512)}


class Stages(NamedTuple):
    """Seconds of the stages of a step."""

    generate: float
    score: float
    update: float


def token_flops(shape: Shape, context: float) -> float:
    """FLOPs of the forward pass of one token that attends to `context` tokens: a multiplication and a sum a number."""
    return 2 * shape.matrix_parameters + 4 * shape.layers * shape.hidden * context


def forward_seconds(shape: Shape, rows: int, tokens: int, given: Assumptions) -> float:
    """Forward passes of whole rows; a token attends to half of its row on average."""
    return rows * tokens * token_flops(shape, tokens / 2) / (PEAK_FLOPS * given.mfu)


def rows_at_once(shape: Shape, rows: int, given: Assumptions) -> int:
    """Rows decoded together: as many as there are, as were allowed, and as the cache holds at their full length."""
    cache = MEMORY * ENGINE_MEMORY - shape.parameters * BYTES
    return min(rows, given.concurrency, int(cache // (shape.cache_bytes * (PROMPT_TOKENS + COMPLETION_TOKENS))))


def generate_seconds(shape: Shape, rollouts: int, given: Assumptions, prompts: int = PROMPTS) -> float:
    """Prefill of every prompt, then one token after another; each reads all weights and the caches of all rows.

    A token takes as long as its bytes or its FLOPs do, whichever is longer.
    """
    rows = prompts * rollouts
    together, context = rows_at_once(shape, rows, given), PROMPT_TOKENS + COMPLETION_TOKENS / 2
    read = shape.matrix_parameters * BYTES + together * shape.cache_bytes * context
    computed = together * token_flops(shape, context)
    token = max(read / (BANDWIDTH * given.decode_share), computed / (PEAK_FLOPS * given.mfu))
    return forward_seconds(shape, prompts, PROMPT_TOKENS, given) + rows / together * COMPLETION_TOKENS * token


def grpo(shape: Shape, given: Assumptions) -> Stages:
    """A model writes, scores (its old log-probabilities) and trains on its own rollouts."""
    rows, tokens = PROMPTS * GRPO_ROLLOUTS, PROMPT_TOKENS + COMPLETION_TOKENS
    forward = forward_seconds(shape, rows, tokens, given)
    return Stages(generate_seconds(shape, GRPO_ROLLOUTS, given), forward, UPDATE * forward)


def codistill(shape: Shape, given: Assumptions) -> Stages:
    """One model's part of CoDistill: the small one writes; each scores all rollouts and trains on those kept."""
    tokens = PROMPT_TOKENS + COMPLETION_TOKENS
    return Stages(
        generate_seconds(shape, SAMPLED, given) if shape is SMALL else 0.0,
        forward_seconds(shape, PROMPTS * SAMPLED, tokens, given),
        UPDATE * forward_seconds(shape, PROMPTS * KEPT, tokens, given),
    )


def opd(given: Assumptions) -> Stages:
    """The student writes a row a prompt, the teacher scores it, the student trains; its own scores are of that pass."""
    tokens = PROMPT_TOKENS + COMPLETION_TOKENS
    return Stages(
        generate_seconds(SMALL, 1, given),
        forward_seconds(LARGE, PROMPTS, tokens, given),
        UPDATE * forward_seconds(SMALL, PROMPTS, tokens, given),
    )


def semi_opd(given: Assumptions, uses: int) -> Stages:
    """The same, where writing and the teacher's scores are of a buffer whose rows are trained on `uses` times."""
    rows = PROMPTS * BUFFERED
    written = generate_seconds(SMALL, 1, replace(given, concurrency=rows), prompts=rows) / BUFFERED
    live = opd(given)
    return Stages(written / uses, live.score / uses, live.update)


def faster(uses: int) -> "Ratio":
    """OPD over Semi-OPD: how many times the steps of Semi-OPD are as fast, its buffer counted."""
    return lambda given: sum(opd(given)) / sum(semi_opd(given, uses))


def both(given: Assumptions) -> float:
    """CoDistill over GRPO of both models."""
    paired = sum(codistill(SMALL, given)) + sum(codistill(LARGE, given))
    return paired / (sum(grpo(SMALL, given)) + sum(grpo(LARGE, given)))


def alone(given: Assumptions) -> float:
    """CoDistill, which trains the small model as well, over GRPO of the large one."""
    return (sum(codistill(SMALL, given)) + sum(codistill(LARGE, given))) / sum(grpo(LARGE, given))


def learner(given: Assumptions) -> float:
    """What the large learner needs: the small model's writing, its own scoring and update, over its GRPO."""
    return (codistill(SMALL, given).generate + sum(codistill(LARGE, given))) / sum(grpo(LARGE, given))


Ratio = Callable[[Assumptions], float]
RATIOS: dict[str, Ratio] = {
    "CoDistill / (GRPO small + GRPO large)": both,
    "CoDistill / GRPO large": alone,
    "large learner in CoDistill / GRPO large": learner,
}


def spread(ratio: Ratio, free: tuple[str, ...] = tuple(RANGES)) -> tuple[float, float, float]:
    """Least, median and greatest ratio where the assumptions named are free in their ranges, the others as default."""
    found = [
        ratio(replace(Assumptions(), **dict(zip(free, values, strict=True))))
        for values in product(*(RANGES[name] for name in free))
    ]
    return min(found), median(found), max(found)


def hinge(ratio: Ratio) -> str:
    """The assumption that moves a ratio most when it alone is free."""

    def reach(name: str) -> float:
        low, _, high = spread(ratio, (name,))
        return high - low

    return max(RANGES, key=reach)


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Print seconds by stage, the ratios, and how far they move with each assumption."""
    given = Assumptions()
    parts = {
        "GRPO, small": grpo(SMALL, given),
        "GRPO, large": grpo(LARGE, given),
        "CoDistill, small": codistill(SMALL, given),
        "CoDistill, large": codistill(LARGE, given),
    }
    sums = {
        name: Stages(*map(sum, zip(parts[f"{name}, small"], parts[f"{name}, large"], strict=True)))
        for name in ("GRPO", "CoDistill")
    }
    named = {**parts, "GRPO, both": sums["GRPO"], "CoDistill, both": sums["CoDistill"]}
    rows = [(name, *(f"{seconds:.0f}" for seconds in (*stages, sum(stages)))) for name, stages in named.items()]
    print(f"Seconds a step of {PROMPTS} prompts on one GPU; {given}\n")
    print(table(("", *Stages._fields, "sum"), rows))
    rows = []
    for name, ratio in RATIOS.items():
        low, middle, high = spread(ratio)
        rows.append((name, f"{ratio(given):.2f}", f"{low:.2f} - {middle:.2f} - {high:.2f}"))
    rows.append(("the paper's 18 % speed-up", f"{1 - PAPER_SPEED_UP:.2f} or {1 / (1 + PAPER_SPEED_UP):.2f}", ""))
    print("\n" + table(("ratio", "default", "all free: min - median - max"), rows))
    rows = [
        (
            name,
            *(
                f"{low:.2f} - {middle:.2f} - {high:.2f}"
                for low, middle, high in (spread(ratio, (free,)) for ratio in RATIOS.values())
            ),
        )
        for free, name in ((free, f"{free} {min(RANGES[free])} to {max(RANGES[free])}") for free in RANGES)
    ]
    print("\n" + table(("free alone", *RATIOS), rows))
    print("\n" + "; ".join(f"{name} hinges on {hinge(ratio)}" for name, ratio in RATIOS.items()) + ".")
    live = opd(given)
    rows: list[tuple[str, ...]] = [("OPD", *(f"{seconds:.1f}" for seconds in (*live, sum(live))), "1.0", "")]
    for uses in USES:
        stages = semi_opd(given, uses)
        seconds = (f"{value:.1f}" for value in (*stages, sum(stages), faster(uses)(given)))
        reached = " - ".join(f"{value:.1f}" for value in spread(faster(uses)))
        rows.append((f"Semi-OPD, a row used {uses} x", *seconds, reached))
    print("\n" + table(("", *Stages._fields, "sum", "OPD / this", "all free: min - median - max"), rows))


if __name__ == "__main__":
    main()
