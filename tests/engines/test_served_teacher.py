"""A teacher scored by an engine: the signals are those of its weights, which are not loaded; the rest is refused."""

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import tiny
from engines.fake_server import serving
from grpo_kit import PolicySpec, read_recipe
from grpo_kit.buffers.fingerprints import parameters_of, weights_of
from grpo_kit.checks import cross_checks
from grpo_kit.config import RecipeError
from grpo_kit.detail import Detail
from grpo_kit.engines import Scored, Server
from grpo_kit.policies import load_policy
from grpo_kit.policies.served import refusals, scores_of
from grpo_kit.policies.serving import load_served
from grpo_kit.run.session import start
from grpo_kit.run.setup import load_inputs

LARGE = PolicySpec(model="tiny:large")
SHORT = [
    "steps=3",
    "prompts_per_step=4",
    "sampler.max_new_tokens=12",
    "evaluation.questions=2",
    "evaluation.samples=1",
    "seed=3",
]


@pytest.fixture(scope="module")
def teacher():
    return load_policy("large", LARGE, live=False)


@pytest.fixture
def server(teacher):
    with serving(teacher, name="large", max_model_len=256) as found:
        found.root = teacher.model.name_or_path
        yield found


def settings(server, **changes) -> Server:
    return Server(**{"url": server.url, "dtype": "float32", "patience": 5.0, "timeout": 30.0} | changes)


def served(server, **changes):
    return load_served("large", replace(LARGE, engine=settings(server, **changes)), longest=40, top_k=4)


def rows(vocabulary: int = tiny.VOCABULARY):
    return tiny.rollouts([4, 0, 7, 1, 3], [0, 0, 1, 1, 2])


class TestScoring:
    @pytest.mark.parametrize("detail", [Detail(), Detail(top_k=4), Detail(top_k=19)])
    def test_it_says_what_the_policy_says(self, teacher, server, detail):
        found, expected = served(server).score_all(rows(), detail=detail), teacher.score_all(rows(), detail=detail)
        assert found.logprobs.dtype == expected.logprobs.dtype
        torch.testing.assert_close(found.logprobs, expected.logprobs, atol=1e-5, rtol=0)
        assert (found.top is None) == (expected.top is None)
        if expected.top is not None:
            assert torch.equal(found.top.ids, expected.top.ids)
            torch.testing.assert_close(found.top.logprobs, expected.top.logprobs, atol=1e-5, rtol=0)

    def test_rows_without_a_token_are_not_sent(self, server):
        policy = served(server)
        before = server.count
        empty = tiny.rollouts([0, 0], [0, 0])
        assert not policy.score_all(empty, detail=Detail(top_k=2)).logprobs.any()
        assert server.count == before

    def test_no_weights_are_loaded_and_configuration_questions_have_answers(self, teacher, server):
        policy = served(server)
        assert not policy.has_weights
        assert all(weight.is_meta for weight in policy.model.parameters())
        assert policy.device == torch.device("cpu")
        assert policy.eos_ids == teacher.eos_ids
        assert policy.vocabulary == teacher.vocabulary
        assert "in an engine" in parameters_of(policy)
        with pytest.raises(ValueError, match="scored by an engine, which gives no hidden states"):
            policy.hidden(rows())

    def test_an_engine_that_cannot_is_found_out_at_the_start(self, server):
        server.max_logprobs = 3
        with pytest.raises(ValueError, match="--max-logprobs"):
            served(server)
        server.max_logprobs, server.max_model_len = 20, 40
        with pytest.raises(ValueError, match=r"room for 40 tokens .* 41 are needed"):
            served(server)

    def test_a_server_of_another_model_is_found_out_by_its_name(self, server):
        server.name, server.root = "other", "/models/other"
        with pytest.raises(
            ValueError, match=r"serves 'other' \(from '/models/other'\), and the policy's model is .*large"
        ):
            served(server)
        assert served(server, model="other").scored_by.model == "other"

    def test_a_server_that_a_run_sent_weights_to_is_no_teacher(self, server):
        server.label = "grpo-kit-1 version 7"
        with pytest.raises(ValueError, match=r"its weights were replaced \(by 'grpo-kit-1 version 7'\)"):
            served(server)


class Wide:
    """An engine whose model has ten tokens; what it says is the same at every place."""

    def __init__(self, ranking):
        self.ranking, self.asked = ranking, []

    def score(self, prompts, completions, top_k):
        self.asked.append((len(prompts), top_k))
        top = tuple(self.ranking[:top_k])
        values = tuple(-0.5 * place for place in range(1, 1 + len(top)))
        return [
            Scored(logprobs=(-1.0,) * len(own), top_ids=(top,) * len(own), top_logprobs=(values,) * len(own))
            for own in completions
        ]


def scores(engine, **changes):
    given = {"name": "large", "vocabulary": 6, "own": 30, "temperature": 1.0, "detail": Detail(top_k=3)} | changes
    return scores_of(engine, tiny.rollouts([2, 1], [0, 0]), **given)


class TestTokensBeyondTheCommonVocabulary:
    def test_they_are_left_out_and_others_take_their_places(self):
        engine = Wide([3, 9, 5, 8, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 0, 1])
        found = scores(engine)
        assert found.top.ids[0, 0].tolist() == [3, 5, 0]
        assert found.top.logprobs[0, 0].tolist() == [-0.5, -1.5, -7.5]
        assert engine.asked == [(2, 3), (2, 14), (2, 27)]

    def test_nothing_more_is_asked_where_there_are_none(self):
        engine = Wide([3, 1, 5, 8])
        assert scores(engine).top.ids[1, 0].tolist() == [3, 1, 5]
        assert engine.asked == [(2, 3)]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("detail", "temperature", "says"),
        [
            (Detail(full=True), 1.0, "Use a divergence over top_k"),
            (Detail(entropy=True), 1.0, "entropies are read"),
            (Detail(), 0.7, "temperature 0.7"),
        ],
    )
    def test_at_scoring(self, detail, temperature, says):
        with pytest.raises(ValueError, match=says):
            scores(Wide([1]), detail=detail, temperature=temperature)
        assert len([*refusals(detail, temperature)]) == 1

    @pytest.mark.parametrize(
        ("name", "changes", "says"),
        [
            ("opd", ["sampler.temperature=0.7"], "rows of temperature 0.7 are scored, and it scores at 1"),
            ("gkd", [], "whole distributions are read"),
            ("opd", ["sampler.policy='large'"], "'large' writes rows, and this engine scores alone"),
            ("codistill", [], "'large' learns, and this engine scores frozen policies alone"),
        ],
    )
    def test_by_check(self, name, changes, says):
        engine = ["policies.large.engine={ kind='server', url='http://localhost:1' }"]
        with pytest.raises(RecipeError) as caught:
            read_recipe(name, settings=[*engine, *changes])
        (line,) = [line for line in caught.value.mistakes if line.startswith("policies.large.engine: ")]
        assert says in line
        assert "emove it" in line

    def test_a_recipe_that_fits_has_no_mistake(self):
        engine = ["policies.large.engine={ kind='server', url='http://localhost:1' }"]
        assert not cross_checks(read_recipe("opd", settings=engine))

    def test_settings_that_would_do_nothing(self):
        with pytest.raises(ValueError, match="device is of no effect, since its engine computes"):
            PolicySpec(model="tiny:large", engine=Server(url="http://localhost:1"), device="cpu")
        with pytest.raises(ValueError, match="gguf_file: an engine reads a model's own format"):
            PolicySpec(model="tiny:large", engine=Server(url="http://localhost:1"), gguf_file="a.gguf")
        with pytest.raises(ValueError, match="a follower takes engine from 'small'"):
            PolicySpec(follows="small", engine=Server(url="http://localhost:1"))


def run(settings_of_run, out):
    recipe = read_recipe("opd", settings=[*SHORT, *settings_of_run])
    console = Console(file=io.StringIO())
    session = start(recipe, load_inputs(recipe), "", out=out, console=console)
    assert session.run() == 0, console.file.getvalue()
    return session.folder.read_metrics(), session.policies["small"]


TOP_K = (
    "learners.small.terms={ d = { kind='divergence', to='large', divergence={ kind='reverse_kl', top_k={ k=4 } } } }"
)


class TestRuns:
    @pytest.mark.parametrize("term", ["", TOP_K])
    def test_a_run_with_a_served_teacher_is_that_with_a_local_one(self, server, tmp_path, term):
        terms = [term] if term else []
        local, ours = run(terms, tmp_path / "local")
        engine = f"policies.large.engine={{ kind='server', url='{server.url}', dtype='float32' }}"
        remote, theirs = run([*terms, engine], tmp_path / "remote")
        assert [line["step"] for line in remote] == [0, 1, 2, 3]
        for one, other in zip(local, remote, strict=True):
            assert one.keys() == other.keys()
            for key in one:
                if not key.startswith("time/"):
                    assert other[key] == pytest.approx(one[key], abs=1e-4), key
        for own, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            torch.testing.assert_close(own, other, atol=1e-4, rtol=0)

    def test_a_teacher_that_dies_for_good_ends_the_run_with_a_sentence(self, server, tmp_path):
        engine = f"policies.large.engine={{ kind='server', url='{server.url}', dtype='float32', patience=0.2 }}"
        recipe = read_recipe("opd", settings=[*SHORT, engine])
        console = Console(file=io.StringIO(), width=1000)
        session = start(recipe, load_inputs(recipe), "", out=tmp_path / "out", console=console)
        server.fault = lambda number: server.die()
        assert session.run() == 1
        assert f"stopped: the server at {server.url} is away" in console.file.getvalue()

    def test_a_server_that_is_away_at_the_start_leaves_no_run_folder(self, tmp_path):
        engine = "policies.large.engine={ kind='server', url='http://127.0.0.1:9', patience=0 }"
        recipe = read_recipe("opd", settings=[*SHORT, engine])
        with pytest.raises(RecipeError, match=r"policies\.large: the server at http://127\.0\.0\.1:9 is away"):
            start(recipe, load_inputs(recipe), "", out=tmp_path / "out", console=Console(quiet=True))
        assert not (tmp_path / "out").exists()


def test_a_buffer_knows_who_scored_it():
    engine = Server(url="http://localhost:1")
    assert weights_of(replace(LARGE, engine=engine)) == weights_of(LARGE) + ", scored by server"
