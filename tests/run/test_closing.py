"""Engines are stopped, all of them, whatever happens."""

import pytest
from rich.console import Console

import tiny
from grpo_kit import read_recipe
from grpo_kit.run.session import start
from grpo_kit.run.setup import close_all, load_inputs


class Engine:
    def __init__(self, fault=None):
        self.fault, self.closed = fault, 0

    def close(self):
        self.closed += 1
        if self.fault:
            raise RuntimeError(self.fault)


def test_one_engine_that_fails_at_its_end_leaves_none_open():
    engines = [Engine(), Engine("dead"), Engine()]
    policies = {"a": tiny.policy(), "b": tiny.policy()}
    policies["a"].engines.update({1: engines[0], 2: engines[1]})
    policies["b"].engines[3] = engines[2]
    with pytest.raises(RuntimeError, match="dead"):
        close_all(policies)
    assert [own.closed for own in engines] == [1, 1, 1]
    close_all(policies)
    assert [own.closed for own in engines] == [1, 1, 1]


def test_what_was_learned_is_written_before_an_engine_fails_at_its_end(tmp_path):
    settings = ["steps=1", "prompts_per_step=2", "data.rows=64", "evaluation.questions=1", "evaluation.samples=1"]
    recipe, out = read_recipe("grpo", settings=settings), tmp_path / "out"
    session = start(recipe, load_inputs(recipe), "", out=out, console=Console(quiet=True))
    session.policies["small"].engines[0] = Engine("dead")
    with pytest.raises(RuntimeError, match="dead"):
        session.run()
    assert (out / "policies" / "small" / "model.safetensors").exists()
    assert (out / "curves.png").exists()


def test_a_run_that_does_not_begin_stops_its_engines(tmp_path, monkeypatch):
    recipe, engine = read_recipe("grpo", settings=["steps=1", "data.rows=64", "evaluation.questions=1"]), Engine()
    policy = tiny.policy()
    policy.engines[0] = engine
    monkeypatch.setattr("grpo_kit.run.session.load_policies", lambda *_, **__: {"small": policy})
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"the run folder .* cannot be made"):
        start(recipe, load_inputs(recipe), "", out=tmp_path / "file", console=Console(quiet=True))
    assert engine.closed == 1
