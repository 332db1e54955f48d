"""Law 10: on-policy distillation and Semi-OPD, through the real update of a tiny model."""

from dataclasses import replace

import torch

import tiny
from grpo_kit import AdamW, Experience, Learner, PolicyGradient, Reinforce, Rewards, SignalKey, Signals
from grpo_kit.detail import Detail
from grpo_kit.learner import LiveLearner
from grpo_kit.learner_batch import LearnerBatch, freeze
from grpo_kit.memory import Memory
from grpo_kit.objective import accumulate
from tolerances import MODEL_SUM

TOP = 4
ROWS = tiny.rollouts([3, 2, 3], [0, 1, 2])


def equal_tokens(mask):
    """A mean over the tokens."""
    return mask / mask.sum()


def learner_of(term, weighting=equal_tokens, lr=0.02) -> Learner:
    return Learner(terms={"distillation": term}, weighting=weighting, optimizer=AdamW(lr=lr, max_grad_norm=1e9))


def frozen(settings: Learner, rows=ROWS) -> LearnerBatch:
    """Rows as the initial student (seed 0) wrote them and the teacher (seed 1) scored them."""
    student, teacher = tiny.policy("small", seed=0), tiny.policy("large", seed=1)
    behavior = replace(rows.behavior, logprobs=student.score_all(rows).logprobs)
    rows = replace(rows, behavior=behavior)
    scores = {
        SignalKey(own.name, 0): own.score_all(rows, detail=Detail(top_k=TOP, full=True)) for own in (student, teacher)
    }
    experience = Experience(rollouts=rows, signals=Signals(scores), rewards=Rewards({}))
    return freeze("small", settings, experience, torch.ones(len(rows), dtype=torch.bool), Memory())


def gradient(settings: Learner, batch: LearnerBatch, current, rows=None) -> torch.Tensor:
    """The gradient of one update of a student that is `current` now."""
    live = LiveLearner.start("small", settings, current, loop_steps=1)
    accumulate(live, batch, range(len(batch.rollouts)) if rows is None else rows, step=1)
    return tiny.gradient_of(current)


def distances(advantage, steps: int) -> list[float]:
    """The largest |log teacher - log student| of the fixed rows' tokens before each update, and after the last.

    The `advantage` may change what was frozen before the first update.
    """
    settings = learner_of(advantage.term)
    batch = advantage.prepared(frozen(settings))
    student, teacher = tiny.policy("small", seed=0), tiny.policy("large", seed=1)
    live = LiveLearner.start("small", settings, student, loop_steps=steps)
    goal, mask = teacher.score_all(batch.rollouts).logprobs, batch.rollouts.mask
    found = []
    for step in range(steps):
        seen = accumulate(live, batch, range(len(batch.rollouts)), step=step).logprobs
        found.append(float((goal - seen)[mask].abs().max()))
        live.step()
    return [*found, float((goal - student.score_all(batch.rollouts).logprobs)[mask].abs().max())]


class Live:
    """The advantage as it is: taken at every update."""

    def __init__(self, advantage):
        self.term = PolicyGradient(advantage=advantage, surrogate=Reinforce())

    def prepared(self, batch):
        return batch


class Cached:
    """The advantage kept from the first scoring, as a reward would be."""

    def __init__(self):
        def of_rewards(rewards, groups):
            return torch.zeros_like(rewards)

        self.term = PolicyGradient(advantage=of_rewards, surrogate=Reinforce())

    def prepared(self, batch):
        teacher = tiny.policy("large", seed=1).score_all(batch.rollouts).logprobs
        fixed = {**batch.frozen["distillation"], "advantages": teacher - batch.rollouts.behavior.logprobs}
        return replace(batch, frozen={"distillation": fixed})


def its_fixed_point_is_the_teacher(advantage, draw=None):
    """Law 10: the real update, again and again on rows of the initial student, ends at the teacher's probabilities."""
    before, *_, after = distances(advantage, 250)
    assert before > 1
    assert after < 1e-2


def every_token():
    """One prompt, and each token of the vocabulary as a completion of its own."""
    count = tiny.VOCABULARY
    rows = tiny.rollouts([1] * count, list(range(count)), prompt_lengths=[2] * count)
    return replace(rows, prompts=((3, 4),) * count, tokens=torch.arange(count)[:, None])


def probabilities(policy, rows) -> torch.Tensor:
    """Of the tokens at the one state there is."""
    return policy.logits(rows.take([0]))[0, 0].softmax(-1)


def expected_gradient_is_the_reverse_kl_s(advantage, draw=None):
    """Law 10 on policy: over the student's own tokens the expected gradient is exactly that of the reverse KL."""
    rows, student, teacher = every_token(), tiny.policy("small", seed=0), tiny.policy("large", seed=1)
    drawn = probabilities(student, rows).detach()
    settings = learner_of(
        PolicyGradient(advantage=advantage, surrogate=Reinforce()), lambda mask: drawn[:, None] * mask
    )
    found = gradient(settings, frozen(settings, rows), student)
    student.model.zero_grad()
    mine, other = probabilities(student, rows), probabilities(teacher, rows).detach()
    (mine * (mine.log() - other.log())).sum().backward()
    torch.testing.assert_close(found, tiny.gradient_of(student), **MODEL_SUM)


def variance(advantage) -> float:
    """Mean squared length of the gradient of one token that the student draws."""
    rows, student = every_token(), tiny.policy("small", seed=0)
    drawn = probabilities(student, rows).detach()
    settings = learner_of(PolicyGradient(advantage=advantage, surrogate=Reinforce()))
    batch = frozen(settings, rows)
    lengths = [gradient(settings, batch, student, [row]).square().sum() for row in range(len(rows))]
    return float((drawn * torch.stack(lengths)).sum())
