"""What the signature of a reward function says."""

import functools
import math
import sys

import pytest

from grpo_kit.rewards.functions import accepted, imported, required_columns, resolve, signature_fault


def trl(prompts, completions, completion_ids, ground_truth, *, task, level=1, **kwargs):
    """All that TRL gives, and three columns of which one may be missing."""


class Scorer:
    def __call__(self, completions, answer):
        return []


def test_required_columns_are_the_parameters_without_a_default_that_nobody_gives():
    assert required_columns(trl) == ("ground_truth", "task")
    assert required_columns(Scorer()) == ("answer",)
    assert required_columns(functools.partial(trl, task=["a"])) == ("ground_truth",)
    assert required_columns(lambda *completions, **columns: []) == ()
    assert required_columns(dict) == ()  # a class that does not tell


def test_a_function_gets_what_it_takes():
    offered = {name: [1] for name in ("prompts", "completions", "completion_ids", "ground_truth", "task", "other")}
    assert accepted(trl, offered) == offered
    assert accepted(lambda completions, task=None: [], offered) == {"completions": [1], "task": [1]}
    assert accepted(dict, offered) == offered


@pytest.mark.parametrize("name", ["trainer_state", "log_extra", "log_metric", "environments"])
def test_what_only_trl_has_is_refused_unless_the_function_can_do_without(name):
    needs, can = {}, {}
    exec(f"def f(completions, {name}, **kwargs): pass", needs)
    exec(f"def f(completions, {name}=None, **kwargs): pass", can)
    assert f"its parameter '{name}' is TRL's own" in signature_fault(needs["f"])
    assert signature_fault(can["f"]) is None
    assert signature_fault(trl) is None


def test_a_parameter_that_cannot_be_given_by_name_is_refused():
    assert "'completions' cannot be given by name" in signature_fault(lambda completions, /: [])
    assert signature_fault(lambda answer=1, /, **columns: []) is None


def test_asking_about_a_name_imports_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "rewards_of_test_functions.py").write_text("def f(completions, gold): return [1.0]")
    name = "rewards_of_test_functions:f"
    assert imported(name) is None
    assert "rewards_of_test_functions" not in sys.modules
    assert resolve(name) is imported(name)
    assert required_columns(imported(name)) == ("gold",)
    assert imported(trl) is trl


def test_a_function_is_found_by_name():
    assert resolve("math:fsum") is math.fsum
    for name, message in [
        ("math", "names no function"),
        (":f", "names no function"),
        ("math:", "names no function"),
        ("nowhere_at_all:f", "cannot be imported"),
        ("math:nothing", "has no function 'nothing'"),
        ("math:pi", "has no function 'pi'"),
    ]:
        with pytest.raises(ValueError, match=message):
            resolve(name)
