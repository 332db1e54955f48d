"""What a server is asked before it is used: its model, its tokenizer, and whether it reports weights."""

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any

from transformers import PreTrainedTokenizerBase

from grpo_kit.engines.answers import MalformedError, Served, served, token_ids
from grpo_kit.engines.http import Call, RefusedError, printable

Ask = Callable[[Call], Any]
"""Sends one request to the server and gives its answer."""
UNTOUCHED = "default"
"""The weight version of a vLLM server whose weights nobody replaced."""


class UnfitError(ValueError):
    """What a server is or has instead of what a policy needs, as the end of a sentence that begins with the server."""


def find_model(ask: Ask, wanted: str | None) -> Served:
    """The model asked for, or the only one there is; UnfitError names those there are."""
    models = served(ask(Call(path="/v1/models")))
    names = ", ".join(f"'{printable(model.name)}'" for model in models) or "none"
    if wanted is None:
        if len(models) != 1:
            raise UnfitError(f"it serves several models: {names}. Say which by model")
        return models[0]
    for model in models:
        if model.name == wanted:
            return model
    raise UnfitError(f"it serves {names}, not '{wanted}'. Start it with --served-model-name {wanted}, or change model")


def refuse_other_model(found: Served, expected: str) -> None:
    """UnfitError where a server's model has another name than a policy's, and neither says what the weights are."""
    if not any(same_model(name, expected) for name in (found.name, found.root) if name is not None):
        root = f" (from '{printable(found.root)}')" if found.root else ""
        raise UnfitError(
            f"it serves '{printable(found.name)}'{root}, and the policy's model is '{expected}'. Start it with that "
            f'model; or, if these are the same weights, say model = "{printable(found.name)}"'
        )


def same_model(one: str, other: str) -> bool:
    """Whether two names (folders, hub names) are of one model, as far as names tell.

    Example:
        >>> same_model("Qwen/Qwen2.5-7B", "/models/qwen2.5-7b/"), same_model("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-1.5B")
        (True, False)
    """
    if Path(one).exists() and Path(other).exists():
        return Path(one).resolve() == Path(other).resolve()
    return PurePath(one).name.lower() == PurePath(other).name.lower()


def refuse_other_tokenizer(ask: Ask, model: str, tokenizer: PreTrainedTokenizerBase, policy: str) -> int | None:
    """UnfitError where a server reads a text as other token ids than a policy's tokenizer; its context length."""
    ids = tokenizer.get_vocab().values()
    spread = sorted(ids)[:: max(1, len(ids) // 64)]
    text = str(tokenizer.decode(spread, skip_special_tokens=True))
    own = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])  # pyright: ignore[reportArgumentType]
    if not own:
        return None
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    try:
        answer = ask(Call(path="/tokenize", body=body))
    except RefusedError as error:
        raise UnfitError(f"it does not tokenize ({error}), as a vLLM server does") from None
    if not isinstance(answer, dict):
        raise MalformedError("no table where the tokens of a text are due")
    found = token_ids(answer.get("tokens"))
    if found != own:
        place = next((i for i, (a, b) in enumerate(zip(found, own, strict=False)) if a != b), min(len(found), len(own)))
        raise UnfitError(
            f"its model '{printable(model)}' has another tokenizer than policy '{policy}': of one text token {place} "
            f"is {_at(found, place)} there and {_at(own, place)} here. Serve the policy's model, or one with its "
            "tokenizer"
        )
    longest = answer.get("max_model_len")
    return longest if type(longest) is int and longest > 0 else None


def weight_version(ask: Ask) -> str | None:
    """The label of a server's weights; None where it does not say."""
    try:
        answer = ask(Call(path="/weight_info"))
    except RefusedError as error:
        if error.status in (404, 405):
            return None
        raise
    label = answer.get("weight_version") if isinstance(answer, dict) else None
    if not isinstance(label, str):
        raise MalformedError("no weight_version where it is due")
    return label


def _at(ids: tuple[int, ...], place: int) -> str:
    return str(ids[place]) if place < len(ids) else "missing"
