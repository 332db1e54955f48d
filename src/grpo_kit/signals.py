"""What policies say of completion tokens: log-probabilities, and as much of the distributions as some part reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from grpo_kit.detail import Detail
from grpo_kit.head import Distributions
from grpo_kit.shapes import AnyShape, PerToken


class SignalKey(NamedTuple):
    """Whose signal: a policy, the version of its weights, and the view (the prompt that the completion follows)."""

    policy: str
    version: int
    view: str = "sampled"


@dataclass(frozen=True, kw_only=True, slots=True)
class TopTokens:
    r"""The most likely tokens of each next-token distribution, the likeliest first.

    Attributes:
        ids: of the tokens.
        logprobs: theirs in the whole distribution, in nats, at the temperature of the rows.
    """

    ids: Int[Tensor, "*token top"]
    logprobs: Float[Tensor, "*token top"]

    def map(self, change: Callable[[AnyShape], AnyShape]) -> "TopTokens":
        """The same with both tensors changed in one way."""
        return TopTokens(ids=change(self.ids), logprobs=change(self.logprobs))

    def likeliest(self, count: int) -> "TopTokens":
        """The first `count` of them."""
        return self.map(lambda values: values[..., :count])


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What one policy says of each completion token, in nats; what nobody asked for is None.

    Attributes:
        logprobs: of the token itself.
        entropy: of the distribution that the token was drawn from.
        top: the most likely tokens.
        distributions: the whole distributions, kept as hidden states and the head that reads them.
    """

    logprobs: PerToken
    entropy: PerToken | None = None
    top: TopTokens | None = None
    distributions: Distributions | None = None

    def covers(self, detail: Detail) -> bool:
        """Whether all that is asked for is there."""
        top = 0 if self.top is None else self.top.ids.shape[-1]
        return (
            top >= detail.top_k
            and (self.entropy is not None or not detail.entropy)
            and (self.distributions is not None or not detail.full)
        )

    def map(self, change: Callable[[AnyShape], AnyShape]) -> "Scores":
        """The same with every tensor changed in one way: rows taken, columns cut or added."""
        return Scores(
            logprobs=change(self.logprobs),
            entropy=None if self.entropy is None else change(self.entropy),
            top=None if self.top is None else self.top.map(change),
            distributions=None if self.distributions is None else self.distributions.map(change),
        )


@dataclass(frozen=True, slots=True)
class Signals:
    """Scores of a batch under several policies, taken once with the sampling-time weights and frozen."""

    scores: Mapping[SignalKey, Scores]

    def __getitem__(self, policy: str) -> Scores:
        """The scores of a policy's newest version under the prompt the rows were sampled with."""
        return self.of(policy)

    def of(self, policy: str, view: str = "sampled") -> Scores:
        """The scores of a policy's newest version under a view; a clear error when nobody asked for them."""
        keys = [key for key in self.scores if key.policy == policy and key.view == view]
        if not keys:
            raise ValueError(
                f"no signal of policy '{policy}' under view '{view}'. Scored: {sorted(map(tuple, self.scores))}. "
                "A part must name every policy it reads in `reads`."
            )
        return self.scores[max(keys, key=lambda key: key.version)]
