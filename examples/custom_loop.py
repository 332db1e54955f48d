"""Train with grpo_kit's parts and a loop of your own: no trainer, no recipe, no configuration object.

Run it: python examples/custom_loop.py
"""

import torch

from grpo_kit import (
    Arithmetic,
    Clip,
    Correctness,
    FixedLength,
    GroupMean,
    Policy,
    PolicySpec,
    PromptStream,
    Signals,
    TokenRatio,
    TransformersSampler,
)
from grpo_kit.data import encode_prompts
from grpo_kit.policies import load_policy


def train(policy: Policy, *, steps: int, prompts_per_step: int = 16, lr: float = 3e-4) -> list[float]:
    """GRPO in plain PyTorch; returns the mean reward of every step."""
    sampler = TransformersSampler(policy=policy.name, samples=8, max_new_tokens=48)
    reward, advantage, ratio = Correctness(), GroupMean(), TokenRatio()
    surrogate, weighting = Clip(low=0.2, high=0.28), FixedLength(length=48)

    questions = encode_prompts(Arithmetic()(), policy.tokenizer, max_tokens=64, needed=["answer"])
    stream, generator = PromptStream(questions, seed=0), torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=lr)
    means = []
    for _ in range(steps):
        rollouts = sampler(stream.take(prompts_per_step), {policy.name: policy}, generator)
        rewards = reward(rollouts, Signals({})).per_row()
        advantages = advantage(rewards, rollouts.groups)[:, None].expand(rollouts.mask.shape)
        anchor = policy.score_all(rollouts).logprobs

        current = policy.score(rollouts).logprobs
        loss = surrogate(ratio(current - anchor, rollouts.mask), advantages) * weighting(rollouts.mask)
        optimizer.zero_grad()
        loss.sum().backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        policy.version += 1
        means.append(float(rewards.mean()))
    return means


if __name__ == "__main__":
    rewards = train(load_policy("small", PolicySpec(model="tiny:small"), live=True), steps=30)
    print(f"mean reward {rewards[0]:.3f} at first, {sum(rewards[-5:]) / 5:.3f} over the last five steps")
