"""How much of a policy's next-token distributions a part reads."""

from typing import Annotated

from pydantic import Field

from grpo_kit.parts import table


@table
class Detail:
    """How much of a policy's next-token distributions a part reads, beside the sampled token's log-probability.

    Attributes:
        entropy: the entropy of each distribution.
        top_k: the most likely tokens with their log-probabilities; 0 for none.
        full: the whole distributions.
    """

    entropy: bool = False
    top_k: Annotated[int, Field(ge=0)] = 0
    full: bool = False

    @property
    def storable(self) -> bool:
        """Whether it is a few numbers a token, which a file can hold."""
        return not self.full and not self.entropy

    def __or__(self, other: "Detail") -> "Detail":
        """What serves both readers."""
        return Detail(
            entropy=self.entropy or other.entropy,
            top_k=max(self.top_k, other.top_k),
            full=self.full or other.full,
        )
