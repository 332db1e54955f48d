"""The records that travel through the loop: prompts, rollouts, signals, rewards. All frozen; parts read them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from einops import reduce
from jaxtyping import Int
from pydantic import Field
from torch import Tensor

from grpo_kit.masked import wide
from grpo_kit.parts import table
from grpo_kit.shapes import GroupId, PerRow, PerToken, RowMask, TokenIds, TokenMask
from grpo_kit.signals import Scores, SignalKey, Signals

StopReason = Literal["eos", "stop", "length", "error"]
"""Why a completion ended: an end-of-sequence token, a stop string, the length limit, or a fault of the sampler."""


@table
class Sampling:
    """The distribution a sampler draws from: tempered, cut by min-p, then top-k, then top-p, and renormalized.

    Each cut is made on what the one before it left, as vLLM makes them. Tokens as likely as the last one that top-k
    keeps are kept, too; of equally likely tokens of which top-p keeps some it keeps those with the highest ids.

    Attributes:
        temperature: divides the logits; 0 is greedy decoding.
        top_p: nucleus mass kept, in (0, 1]: the fewest most likely tokens that have it together; 1 keeps everything.
        top_k: number of most likely tokens kept; 0 keeps everything.
        min_p: tokens less likely than this times the likeliest one are cut, in [0, 1); 0 keeps everything.
    """

    temperature: Annotated[float, Field(ge=0)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompts:
    """A batch of prompts: token ids, one group id each, and the data set's columns (the gold answer, ...).

    `numbers` is the place of each prompt in its set; empty for prompts of no set.
    """

    ids: tuple[tuple[int, ...], ...]
    groups: tuple[int, ...]
    columns: Mapping[str, tuple[Any, ...]]
    numbers: tuple[int, ...] = ()

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Writer:
    """Who wrote tokens: a policy at a version of its weights, under sampling parameters."""

    policy: str
    version: int
    sampling: Sampling


NOBODY = -1
"""The writer of tokens that no policy wrote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Behavior:
    r"""The behavior policy of every token.

    Attributes:
        writers: the policies that wrote, each once.
        writer: index into `writers`, a token; `NOBODY` where no policy wrote it (supervised data beside sampled rows).
        logprobs: $\log \mu(o_t \mid s_t)$ in nats, of the distribution really sampled from (temperature, top-p,
            top-k and min-p included); 0 where nobody wrote.
        model_logprobs: the same under the writer's own model at the sampling temperature, nothing cut (greedy rows:
            untempered), as the sampler computed it; a trainer that computes alike scores the same. NaN where it is not
            known, None where it is of no token. Only for looking at: no loss reads it.
    """

    writers: tuple[Writer, ...]
    writer: Int[Tensor, "row token"]
    logprobs: PerToken
    model_logprobs: PerToken | None = None

    def take(self, rows: Int[Tensor, " row"], width: int) -> "Behavior":
        """Of the given rows, in the given order, cut to a number of tokens."""
        return Behavior(
            writers=self.writers,
            writer=self.writer[rows, :width],
            logprobs=self.logprobs[rows, :width],
            model_logprobs=None if self.model_logprobs is None else self.model_logprobs[rows, :width],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollouts:
    """Completions, one a row, right-padded to the longest.

    Attributes:
        prompts: token ids of each row's prompt.
        tokens: token ids of the completions; anything beyond a row's length.
        mask: True where a token was written (by length, never by id: a pad id may be a real token).
        groups: the group (prompt) of each row.
        stop_reasons: why each row ended.
        texts: the completions as text, special tokens left out.
        columns: the data set's columns, one value a row.
        behavior: who wrote each token; None for rows nobody sampled (supervised data).
    """

    prompts: tuple[tuple[int, ...], ...]
    tokens: TokenIds
    mask: TokenMask
    groups: GroupId
    stop_reasons: tuple[StopReason, ...]
    texts: tuple[str, ...]
    columns: Mapping[str, tuple[Any, ...]]
    behavior: Behavior | None

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.prompts)

    @property
    def lengths(self) -> Int[Tensor, " row"]:
        """Completion tokens a row."""
        return reduce(self.mask.long(), "row token -> row", "sum")

    @property
    def temperature(self) -> float:
        """The temperature all rows were sampled at, at which every policy scores them; 1 for rows nobody sampled."""
        found = {writer.sampling.temperature for writer in self.behavior.writers} if self.behavior else set[float]()
        found = (found - {0.0} or found) or {1.0}  # greedy rows stand beside sampled ones for comparison alone
        if len(found) != 1:
            raise ValueError(f"rows of one batch were sampled at temperatures {sorted(found)}; sample them at one")
        return found.pop()

    @property
    def greedy(self) -> RowMask:
        """True for rows decoded greedily: rewarded for comparison, never trained on."""
        if self.behavior is None:
            return torch.zeros_like(self.groups, dtype=torch.bool)
        return reduce(self.tokens_of(lambda writer: writer.sampling.temperature == 0), "row token -> row", "any")

    @property
    def sampled(self) -> RowMask:
        """True for rows that some policy wrote; the others are supervised data. A row without a token is sampled."""
        if self.behavior is None:
            return torch.zeros_like(self.groups, dtype=torch.bool)
        return ~reduce(self.mask & (self.behavior.writer == NOBODY), "row token -> row", "any")

    def written_by(self, policy: str) -> TokenMask:
        """True for the tokens that a policy (at any version) wrote."""
        return self.tokens_of(lambda writer: writer.policy == policy)

    def tokens_of(self, wanted: Callable[[Writer], bool]) -> TokenMask:
        """True for the tokens of the writers wanted."""
        if self.behavior is None or not self.behavior.writers:
            return torch.zeros_like(self.mask)
        found = torch.tensor([wanted(writer) for writer in self.behavior.writers], device=self.mask.device)
        return self.mask & (self.behavior.writer != NOBODY) & found[self.behavior.writer]

    def take(self, rows: Sequence[int]) -> "Rollouts":
        """The given rows, in the given order, cut to the longest of them."""
        index = torch.as_tensor(rows, dtype=torch.long, device=self.mask.device)
        width = max(1, int(self.lengths[index].max())) if len(rows) else 1
        return Rollouts(
            prompts=tuple(self.prompts[row] for row in rows),
            tokens=self.tokens[index, :width],
            mask=self.mask[index, :width],
            groups=self.groups[index],
            stop_reasons=tuple(self.stop_reasons[row] for row in rows),
            texts=tuple(self.texts[row] for row in rows),
            columns={name: tuple(values[row] for row in rows) for name, values in self.columns.items()},
            behavior=self.behavior and self.behavior.take(index, width),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampled:
    """What a sampler gives that supplies signals with its rows, so that those policies need not score them.

    `metrics` are numbers of its own to log, under whole keys such as `sampler/too_old`.
    """

    rollouts: Rollouts
    signals: Mapping[SignalKey, Scores]
    metrics: Mapping[str, float] = field(default_factory=dict)


ABSTAINED = "none"
"""The status of a row on which a reward has no opinion (not: could not decide); its value there is NaN."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One named reward of a batch.

    Attributes:
        values: one number a row, or one a token (zero outside the mask); NaN is a missing reward: the row is left out
            of its group's baseline and gets advantage 0.
        statuses: one word a row, `ok` where the value can be trusted as it is; counted in the metrics.
    """

    values: PerRow | PerToken
    statuses: tuple[str, ...]

    @property
    def abstained(self) -> RowMask:
        """True where it says nothing of a row (NaN with status `none`), so that the other components decide alone."""
        silent = torch.tensor([status == ABSTAINED for status in self.statuses], device=self.values.device)
        return silent & self.per_row().isnan()

    def per_row(self) -> PerRow:
        """The values as one number a row (per-token values summed), in float32 at least."""
        values = wide(self.values)
        return values if values.ndim == 1 else reduce(values, "row token -> row", "sum")


@dataclass(frozen=True, slots=True)
class Rewards:
    """The named components of a batch's rewards, never only their sum."""

    components: Mapping[str, Component]

    def total(self, weights: Mapping[str, float]) -> PerRow:
        r"""The weighted sum $\sum_c w_c r_c$ a row; NaN where a weighted component is missing.

        A component that abstains (NaN with status `none`: it says nothing of such rows) is left out of the sum; where
        all abstain the row has no reward.
        """
        values = torch.stack([weight * self.components[name].per_row() for name, weight in weights.items()])
        abstained = torch.stack([self.components[name].abstained for name in weights])
        return torch.where(abstained.all(0), torch.nan, torch.where(abstained, 0, values).sum(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """One sampled batch with everything that is fixed about it: rollouts, signals and rewards."""

    rollouts: Rollouts
    signals: Signals
    rewards: Rewards

    def take(self, rows: Sequence[int]) -> "Experience":
        """The given rows, in the given order, cut to the longest of them."""
        rollouts = self.rollouts.take(rows)
        width, index = rollouts.mask.shape[1], list(rows)

        def cut(values: Tensor) -> Tensor:
            return values[index] if values.ndim == 1 else values[index, :width]

        scores = {key: score.map(cut) for key, score in self.signals.scores.items()}
        components = {
            name: Component(values=cut(part.values), statuses=tuple(part.statuses[row] for row in rows))
            for name, part in self.rewards.components.items()
        }
        return Experience(rollouts=rollouts, signals=Signals(scores), rewards=Rewards(components))
