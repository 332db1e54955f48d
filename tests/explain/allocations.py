"""What PyTorch's own allocator says that a piece of work holds."""

from dataclasses import replace

import torch
from torch.profiler import ProfilerActivity, profile

import tiny
from grpo_kit import Behavior, Experience, Rewards, Sampling, SignalKey, Signals, Writer
from grpo_kit.explain.memory import _rows
from grpo_kit.learner import LiveLearner
from grpo_kit.learner_batch import freeze
from grpo_kit.memory import Memory
from grpo_kit.objective import objective, token_weights

SHORT = ["prompts_per_step=2", "sampler.samples=8", "selection.rule.keep=4", "sampler.max_new_tokens=48"]
PROMPT = 10


def allocated(work):
    """The most bytes that a piece of work holds at one time, by PyTorch's own allocator."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def updating(recipe, name, policies, count=8):
    """The most bytes that an update holds on top of weights and gradients: the objective of a micro-batch."""
    rows, policy, learner = _rows(count, PROMPT, 48), policies[name], recipe.learners[name]
    behavior = Behavior(
        writers=(Writer(policy=name, version=0, sampling=Sampling()),),
        writer=torch.zeros_like(rows.tokens),
        logprobs=torch.full(rows.mask.shape, -1.0),
    )
    rows = replace(rows, behavior=behavior)
    details = recipe.details().items()
    scored = {SignalKey(other, 0): policies[other].score_all(rows, detail=own) for other, own in details}
    rewards = Rewards({key: tiny.component([1.0] * count) for key in recipe.rewards})
    experience = Experience(rollouts=rows, signals=Signals(scored), rewards=rewards)
    batch = freeze(name, learner, experience, torch.ones(count, dtype=torch.bool), Memory())
    live = LiveLearner.start(name, learner, policy, loop_steps=1)
    weights = token_weights(learner, batch, range(count))

    def work():
        objective(live, batch, weights, learner.terms).total.backward()

    work()  # the gradients are there from now on
    return allocated(work)
