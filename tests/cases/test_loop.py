"""What users of other trainers met when a run stops and goes on, saves its models, or splits its batches.

The ids are those of reports.md. B108 is in tests/checkpoints/test_store.py, where a kill at moments by chance is, too;
B119 is in test_loss.py. B122 (all ranks write one loader-state file) has no like here: a run is one process, and the
state of its prompts is in the checkpoint's one part `loop`.
"""

import os
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import tiny
import tiny_recipe
from grpo_kit import Lora, MaxVariance, PolicySpec, PromptSet, PromptStream, SelectionSpec, disk, loop
from grpo_kit.checkpoints import newest, save
from grpo_kit.checkpoints.state import restore, state_of
from grpo_kit.loop import Training
from grpo_kit.policies import load_policy
from tiny_recipe import learner

SIX = PromptSet(ids=tuple((2 + number, 3 + number) for number in range(6)), columns={}, skipped=())


def training(own=None, *, steps=6, **changes):
    """Two epochs over six prompts, two a step."""
    own = own or tiny.policy(dtype=torch.float32)
    recipe = tiny_recipe.recipe(steps=steps, **changes)
    return Training.begin(recipe, {"small": own}, PromptStream(SIX, seed=recipe.seed))


def prompts_of(report):
    return list(dict.fromkeys(report.experience.rollouts.prompts))


def stopped(tmp_path, *, after=2, **settings):
    """A training in another process's place, from the checkpoint of one that took some steps."""
    first = training(**settings)
    for _ in range(after):
        first.advance()
    save(tmp_path, first.step, state_of(first))
    again = training(**settings)
    restore(again, newest(tmp_path)[0].read())
    return again


def weights(of):
    return [weight.detach().clone() for weight in of.policies["small"].model.parameters()]


def test_b102_the_order_of_the_prompts_is_that_of_an_unbroken_run(tmp_path):
    whole = training()
    expected = [prompts_of(whole.advance()) for _ in range(6)]
    epochs = [[ids for step in expected[at : at + 3] for ids in step] for at in (0, 3)]
    assert [sorted(epoch) for epoch in epochs] == [sorted(SIX.ids)] * 2
    assert epochs[0] != epochs[1]
    again = stopped(tmp_path)
    assert [prompts_of(again.advance()) for _ in range(4)] == expected[2:]


def test_b103_what_chance_decides_is_that_of_an_unbroken_run(tmp_path):
    whole = training()
    whole.advance()
    whole.advance()
    expected = torch.rand(4, generator=whole.generator)
    again = stopped(tmp_path)
    assert torch.equal(torch.rand(4, generator=again.generator), expected)
    assert not torch.equal(torch.rand(4, generator=training().generator), expected)


def test_b105_a_run_that_goes_on_at_step_2_reads_the_third_batch(tmp_path):
    stream = PromptStream(SIX, seed=0)
    batches = [list(stream.take(2).ids) for _ in range(3)]
    again = stopped(tmp_path)
    assert prompts_of(again.advance()) == batches[2]
    assert again.step == 3


MOMENTS = 10
"""Every file and folder that reaches the disk is one moment; at the last the checkpoint is whole."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked writer")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_b106_b107_a_kill_between_two_files_leaves_the_one_before_or_all_of_it(tmp_path, monkeypatch, moment):
    first = training()
    first.advance()
    save(tmp_path, 1, state_of(first))
    first.advance()
    state, left, real = state_of(first), [moment], disk.sync

    def sync(path):
        if left[0] == 0:
            os._exit(9)
        left[0] -= 1
        real(path)

    if (child := os.fork()) == 0:
        monkeypatch.setattr(disk, "sync", sync)
        save(tmp_path, 2, state)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert (code == 9) == (moment < MOMENTS - 1)
    found, faults = newest(tmp_path)
    assert faults == []
    assert found.step == (1 if moment < MOMENTS - 2 else 2)
    again = training()
    restore(again, found.read())
    assert again.step == again.policies["small"].version == found.step
    assert all(torch.equal(*pair) for pair in zip(weights(again), weights(first), strict=True)) == (found.step == 2)


def loaded(folder, *, tie=True, **settings):
    """A policy loaded from a folder; its head and embedding are one tensor unless said otherwise."""
    config = tiny.policy().model.config.to_dict() | {"tie_word_embeddings": tie}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**config)).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return load_policy("small", PolicySpec(model=str(folder), **settings), live=True)


def is_tied(model):
    return model.get_input_embeddings().weight is model.get_output_embeddings().weight


@pytest.mark.parametrize("lora", [None, Lora(rank=2)], ids=["b109", "b110_in_a_wrapper"])
def test_b109_b110_tied_weights_are_saved_once_and_come_back_tied(tmp_path, lora):
    ids = torch.tensor([[2, 3, 4]])
    own = loaded(tmp_path / "model", lora=lora)
    first = training(own)
    first.advance()
    own.save(tmp_path / "saved")
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    assert is_tied(saved)
    torch.testing.assert_close(saved(ids).logits, own.model(ids).logits)
    state = state_of(first)
    if lora is None:
        assert sum("embed" in name or "lm_head" in name for name in state["policy-small"]) == 1
    save(tmp_path / "checkpoints", 1, state)
    again = training(loaded(tmp_path / "model", lora=lora))
    before = again.policies["small"].model(ids).logits
    restore(again, newest(tmp_path / "checkpoints")[0].read())
    after = again.policies["small"].model(ids).logits
    assert is_tied(again.policies["small"].model)
    assert torch.equal(after, own.model(ids).logits)
    assert not torch.equal(after, before)


def test_b114_a_run_of_adapters_keeps_the_moments_of_adam(tmp_path):
    def adapted():
        return loaded(tmp_path / "model", tie=False, lora=Lora(rank=4))

    whole = training(adapted())
    for _ in range(4):
        whole.advance()
    first = training(adapted())
    first.advance()
    first.advance()
    save(tmp_path, 2, state_of(first))
    again, without = training(adapted()), training(adapted())
    restore(again, newest(tmp_path)[0].read())
    restore(without, newest(tmp_path)[0].read())
    without.learners["small"].optimizer.state.clear()
    for own in (again, without):
        own.advance()
        own.advance()
    for one, other in zip(weights(again), weights(whole), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    assert any((one - other).abs().max() > 1e-4 for one, other in zip(weights(without), weights(whole), strict=True))


def test_b117_the_schedule_steps_with_the_optimizer_not_with_micro_batches():
    half = learner(mini_batches=2, optimizer=replace(learner().optimizer, decay="linear"))
    rates = {}
    for budget in (16384, 8):  # all rows of a mini-batch at once, and about one
        own = training(tiny.policy(dtype=torch.float32, budget=budget), steps=2, learners={"small": half})
        rates[budget] = [own.advance().metrics["learner/small/lr"] for _ in range(2)]
        assert own.learners["small"].schedule.last_epoch == own.policies["small"].version == 4
    assert rates[8] == rates[16384] == [1e-2 * 4 / 4, 1e-2 * 2 / 4]


def test_b121_groups_are_whole_for_the_baseline_whatever_the_split(monkeypatch):
    seen, real = [], loop.accumulate

    def accumulate(live, batch, rows, **settings):
        seen.append((batch, list(rows)))
        return real(live, batch, rows, **settings)

    monkeypatch.setattr(loop, "accumulate", accumulate)
    report = training(learners={"small": learner(mini_batches=3)}).advance()  # 8 rows in groups of 4
    batch = seen[0][0]
    groups = batch.rollouts.groups
    assert groups.unique(return_counts=True)[1].tolist() == [4, 4]
    assert sorted(len(rows) for _, rows in seen) == [2, 3, 3]
    assert sorted(row for _, rows in seen for row in rows) == list(range(8))
    rewards = report.experience.rewards.components["task"].values
    assert len(set(rewards.tolist())) > 1
    means = torch.stack([rewards[groups == group].mean() for group in groups])
    torch.testing.assert_close(batch.frozen["policy"]["advantages"][:, 0], rewards - means)


def test_b121_a_group_smaller_than_what_is_kept_of_it_is_an_error_with_both_numbers():
    with pytest.raises(ValueError, match=r"keeps 6 of 4 samples a prompt.* Raise sampler\.samples"):
        training(selection=SelectionSpec(rule=MaxVariance(keep=6), rewards={"task": 1.0}))
