"""Three log-probabilities and the two quotients between them."""

from dataclasses import dataclass

from grpo_kit.shapes import PerToken


@dataclass(frozen=True, kw_only=True, slots=True)
class LogProbs:
    r"""What the policy being updated, its anchor and the tokens' writer say of each token, in nats.

    `log_ratio` is what the surrogate sees, `log_correction` what becomes a detached importance weight. Their sum is
    always `current - behavior`: nothing can be applied twice.

    Attributes:
        current: log-probabilities of the policy being updated, with gradient.
        anchor: fixed; the learner's own at scoring time (`proximal`), or the writer's (`behavior`).
        behavior: fixed; of the distribution each token was really sampled from.
    """

    current: PerToken
    anchor: PerToken
    behavior: PerToken

    @property
    def log_ratio(self) -> PerToken:
        r"""$\log \pi_\mathrm{current} - \log \pi_\mathrm{anchor}$."""
        return self.current - self.anchor

    @property
    def log_correction(self) -> PerToken:
        r"""$\log \pi_\mathrm{anchor} - \log \pi_\mathrm{behavior}$."""
        return self.anchor - self.behavior
