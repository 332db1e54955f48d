"""Faults of other trainers' sampling (B numbers are those of the collection), each as a user would meet it.

Those of inference engines are with the engines. B067 is about several turns, which nothing here samples: what applies
of it is that a prompt is rendered once.
"""

from dataclasses import replace

import datasets
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import tiny
from grpo_kit import (
    Grouped,
    Hinted,
    Policy,
    Prompts,
    PromptSet,
    PromptStream,
    RecipeError,
    Replay,
    Rollouts,
    TransformersSampler,
    train,
)
from grpo_kit.buffers import Buffer, fill
from grpo_kit.buffers.fingerprints import parameters_of, rollout_identity
from grpo_kit.data import encode_prompts
from grpo_kit.data.report import bad_rows
from grpo_kit.run.setup import open_recipe
from tiny_recipe import recipe

SAMPLER = TransformersSampler(policy="small", samples=4, max_new_tokens=6)


def policies(dtype=torch.float64) -> dict:
    return {name: tiny.policy(name, seed, dtype=dtype) for seed, name in enumerate(("small", "large"))}


def write(sampler, prompts: Prompts, seed: int = 0, own=None) -> Rollouts:
    return sampler(prompts, own or policies(), torch.Generator().manual_seed(seed))


def prompts_of(found: PromptSet) -> Prompts:
    return found.take(range(len(found)))


def seen_by(policy: Policy, work) -> list[list[int]]:
    """The ids without padding that the model is given in the first forward pass of some work, row by row."""
    seen: list[list[int]] = []

    def look(module, args, kwargs):
        if not seen:
            pairs = zip(kwargs["input_ids"], kwargs["attention_mask"], strict=True)
            seen.extend(ids[real.bool()].tolist() for ids, real in pairs)

    assert policy.has_linear_head  # tried once, by a pass of its own
    hook = policy.model.get_decoder().register_forward_pre_hook(look, with_kwargs=True)
    try:
        work()
    finally:
        hook.remove()
    return seen


def chatting(template: str, *more: str) -> PreTrainedTokenizerFast:
    """A tokenizer of words that puts <s> in front of a text, with a chat template."""
    known = dict.fromkeys(("<pad>", "<eos>", "<s>", *"abcdefghi", *more))
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(known)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", bos_token="<s>")
    tokenizer.chat_template = template
    return tokenizer


def chats(*messages) -> datasets.Dataset:
    return datasets.Dataset.from_dict({"prompt": [list(messages)]})


@pytest.mark.parametrize(
    "rows",
    [
        chats({"role": "user", "content": "a b"}),
        datasets.Dataset.from_dict({"prompt": ["a b"]}),
        datasets.Dataset.from_dict({"prompt": ["<s> a b"]}),  # rendered by hand
    ],
    ids=["chat", "text", "text with <s>"],
)
def test_b061_a_prompt_begins_with_one_bos(rows):
    found = encode_prompts(rows, chatting("<s> {{ messages[0].content }}"), max_tokens=9)
    assert found.ids == ((2, 3, 4),)
    own = tiny.policy()
    rollouts = write(SAMPLER, prompts_of(found), own={"small": own})
    assert rollouts.prompts == ((2, 3, 4),) * 4
    assert seen_by(own, lambda: write(SAMPLER, prompts_of(found), own={"small": own})) == [[2, 3, 4]]
    trained = seen_by(own, lambda: own.score(rollouts))
    assert [row[:3] for row in trained] == [[2, 3, 4]] * 4


def test_b063_a_prompt_over_the_limit_is_left_out_and_counted():
    rows = datasets.Dataset.from_dict({"prompt": ["a b", " ".join("abcdefghijab"), "c"]})
    found = encode_prompts(rows, tiny.tokenizer(), max_tokens=8)
    assert found.ids == ((2, 3), (4,))
    assert [str(fault) for fault in found.skipped] == ["row 1: 12 tokens, over max_prompt_tokens = 8"]
    assert "1 too long" in bad_rows(found)
    rollouts = write(SAMPLER, prompts_of(found))
    assert rollouts.groups.tolist() == [0] * 4 + [1] * 4


def test_b063_a_model_without_enough_positions_is_named_before_it_is_loaded():
    with pytest.raises(RecipeError, match=r"policies\.small: .* positions"):
        open_recipe("grpo", settings=["sampler.max_new_tokens=100000"])


def merging() -> Policy:
    """A policy whose tokenizer merges: the text of [he, llo] is encoded as [hello]."""
    letters = ["<eos>", "h", "e", "l", "o", "he", "ll", "llo", "hello"]
    merges = [("h", "e"), ("l", "l"), ("ll", "o"), ("he", "llo")]
    inner = Tokenizer(models.BPE({token: number for number, token in enumerate(letters)}, merges))
    inner.decoder = decoders.Fuse()
    config = LlamaConfig(
        vocab_size=len(letters),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config).eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<eos>")
    return Policy(name="small", model=model, tokenizer=tokenizer, vocabulary=len(letters))


def test_b065_b066_what_was_sampled_is_trained_on_and_counted_not_its_text_encoded_again():
    own = merging()
    tokenizer = own.tokenizer
    assert tokenizer("hello")["input_ids"] == [8]
    sampler = TransformersSampler(policy="small", samples=200, max_new_tokens=5)
    rollouts = write(sampler, Prompts(ids=((1,),), groups=(0,), columns={}), own={"small": own})
    ids = [row[real].tolist() for row, real in zip(rollouts.tokens, rollouts.mask, strict=True)]
    apart = [number for number, row in enumerate(ids) if [5, 7] in [row[at : at + 2] for at in range(len(row))]]
    assert apart  # he llo
    again = [tokenizer(text)["input_ids"] for text in rollouts.texts]
    assert any(again[number] != ids[number] for number in apart)
    scored = seen_by(own, lambda: own.score(rollouts))
    assert scored == [[1, *row] for row in ids]
    cut = [number for number, reason in enumerate(rollouts.stop_reasons) if reason == "length"]
    assert {len(ids[number]) for number in cut} == {5}
    assert any(len(again[number]) != 5 for number in cut)


def test_b067_a_prompt_is_rendered_once_and_the_sampled_tokens_are_never_rendered_again():
    """The template drops the thoughts of earlier turns; those of the completion stay."""
    template = "{% for m in messages %}{{ m.content.split('</think>')[-1] }} {% endfor %}i"
    tokenizer = chatting(template, "<think>", "</think>")
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "<think> b </think> c"},
        {"role": "user", "content": "d"},
    ]
    found = encode_prompts(chats(*messages), tokenizer, max_tokens=9)
    (ids,) = found.ids
    assert tokenizer.convert_ids_to_tokens(list(ids)) == ["a", "c", "d", "i"]
    own = replace(tiny.policy(), tokenizer=tokenizer)
    rollouts = write(replace(SAMPLER, samples=200), prompts_of(found), own={"small": own})
    assert "<think>" not in tokenizer.get_added_vocab()  # an ordinary word, so that texts show it
    sampled = [[*ids, *row[real].tolist()] for row, real in zip(rollouts.tokens, rollouts.mask, strict=True)]
    assert seen_by(own, lambda: own.score(rollouts)) == sampled


def rows_of(seed: int, prompts: int = 1, sampler=SAMPLER) -> list[Rollouts]:
    """The rows of two steps of a run."""
    ids = tuple((2 + number,) for number in range(prompts))
    columns = {"answer": tuple("abcdefgh"[:prompts])}
    stream = PromptStream(PromptSet(ids=ids, columns=columns, skipped=()), seed=seed)
    given = recipe(steps=2, seed=seed, prompts_per_step=prompts, sampler=sampler)
    reports = train(given, {"small": tiny.policy("small", dtype=torch.float32)}, stream)
    return [report.experience.rollouts for report in reports]


def test_b069_the_seed_of_a_run_decides_its_samples():
    """One prompt, so that its order decides nothing."""
    first, again, other = rows_of(1), rows_of(1), rows_of(2)
    assert [rows.texts for rows in first] == [rows.texts for rows in again]
    assert first[0].texts != other[0].texts
    assert first[0].texts != first[1].texts  # nor is one step like the next


def test_b069_with_a_buffer_the_seed_of_a_run_decides_the_order_alone(tmp_path):
    prompts = PromptSet(ids=tuple((2 + number,) for number in range(4)), columns={"answer": tuple("abcd")}, skipped=())
    buffer, own = Buffer(tmp_path / "b"), policies(torch.float32)
    weights = {"small": parameters_of(own["small"])}
    settings = {"seed": 0, "prompts_per_shard": 4, "vocabulary": tiny.VOCABULARY}
    buffer.begin(rollout_identity(SAMPLER, weights, tiny.tokenizer(), prompts, **settings), {})
    fill(buffer, SAMPLER, prompts, own, {})
    replay = Replay(buffer=str(buffer.path), of=SAMPLER)
    orders, texts = [], []
    for seed in (1, 3):
        drawn = PromptStream(prompts, seed=seed).take(4)
        rows = replay(drawn, own, torch.Generator().manual_seed(seed)).rollouts
        orders.append(drawn.ids)
        texts.append({ids: rows.texts[4 * place : 4 * place + 4] for place, ids in enumerate(drawn.ids)})
    assert orders[0] != orders[1]
    assert texts[0] == texts[1]


LARGE = TransformersSampler(policy="large", samples=4, max_new_tokens=2)
TWO = Prompts(ids=((3, 2, 4, 5), (9, 2, 4)), groups=(0, 1), columns={"answer": ("2", "14")})


@pytest.mark.parametrize(
    "sampler",
    [SAMPLER, replace(SAMPLER, rows_per_batch=1), Grouped(of=(SAMPLER, LARGE)), Hinted(hints=LARGE, of=SAMPLER)],
    ids=["together", "one by one", "grouped", "hinted"],
)
def test_b074_each_completion_stands_behind_its_own_prompt(sampler):
    rows = write(sampler, TWO)
    each = len(rows) // 2
    assert rows.groups.tolist() == [0] * each + [1] * each
    assert rows.prompts == (TWO.ids[0],) * each + (TWO.ids[1],) * each
    assert rows.columns["answer"] == ("2",) * each + ("14",) * each

    def off(given: Rollouts) -> float:
        """How far what the writers say of the rows is from what they were drawn with."""
        found = 0.0
        for name, own in policies().items():
            gap = own.score_all(given).logprobs.float() - given.behavior.logprobs
            found = max([found, *gap[given.written_by(name)].abs().tolist()])
        return found

    assert off(rows) < 1e-4
    assert off(replace(rows, prompts=rows.prompts[::-1])) > 0.1  # what the other prompt would give


def test_b075_temperature_zero_is_the_likeliest_token_by_the_untempered_model():
    greedy = replace(SAMPLER, samples=1, temperature=0.0, top_k=3, top_p=0.5)
    rows, own = write(greedy, TWO), tiny.policy()
    logits = own.logits(rows)[rows.mask]
    assert rows.tokens[rows.mask].tolist() == logits.argmax(-1).tolist()
    likeliest = logits.log_softmax(-1).amax(-1).float()
    torch.testing.assert_close(rows.behavior.logprobs[rows.mask], likeliest, rtol=0, atol=1e-5)
    assert rows.behavior.logprobs.isfinite().all()
    assert (likeliest < -0.01).any()  # not the 0 of a distribution with one token
    assert rows.texts == write(greedy, TWO, seed=5).texts
