"""The words around a row's own text: template, few-shot examples, system message; as plain text or as chat messages."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from grpo_kit.data.few_shot import Example

Messages = list[Any]
"""Chat messages as a row gives them: tables, unless it is a bad row, of which the chat template will tell."""

Template = Annotated[str, Field(pattern=r"\{prompt\}")]
"""A text with `{prompt}` in it, once or more; other braces mean themselves."""
SHOT_TEMPLATE = "{prompt} {answer}\n\n"


def fill(template: str, **texts: str) -> str:
    """Put texts into their places, all at once, so that braces within a text stay as they are.

    Example:
        >>> fill("Q: {prompt} A:", prompt="{prompt}?")
        'Q: {prompt}? A:'
    """
    return re.sub("{(" + "|".join(texts) + ")}", lambda found: texts[found[1]], template)


def plain_prompt(text: str, *, template: str, examples: Sequence[Example], shot_template: str) -> str:
    r"""The examples, each through the template and then the `shot_template`, and the text through the template.

    Example:
        >>> plain_prompt("1+1", template="{prompt}=", examples=[Example(prompt="2+3", answer="5")],
        ...              shot_template="{prompt} {answer}; ")
        '2+3= 5; 1+1='
    """
    shots = (
        fill(shot_template, prompt=fill(template, prompt=example.prompt), answer=example.answer) for example in examples
    )
    return "".join(shots) + fill(template, prompt=text)


def chat_prompt(given: str | Messages, *, template: str, examples: Sequence[Example], system: str | None) -> Messages:
    """The system message, an exchange of user and assistant an example, then the text as a user's message.

    A list of messages takes the text's place as it is. It may bring a system message of its own, which stays first;
    ValueError where `system` gives another.

    Example:
        >>> chat_prompt("1+1", template="{prompt}=?", examples=[], system=None)
        [{'role': 'user', 'content': '1+1=?'}]
    """
    own = [_message("user", fill(template, prompt=given))] if isinstance(given, str) else list(given)
    head = [_message("system", system)] if system is not None else []
    if own and isinstance(own[0], dict) and own[0].get("role") == "system":
        if head:
            raise ValueError("it brings a system message of its own beside the recipe's `system`")
        head, own = own[:1], own[1:]
    shots: Messages = []
    for example in examples:
        shots += [_message("user", fill(template, prompt=example.prompt)), _message("assistant", example.answer)]
    return [*head, *shots, *own]


def _message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}
