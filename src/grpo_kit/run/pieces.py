"""The text of each token of a completion, such that the texts one after another are the completion."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

UNFINISHED = "\ufffd"
"""What decoding gives for bytes that are no whole character."""
LONGEST = 16
"""Tokens that wait for a character at most: four bytes make one, and a run of damaged ones is judged as a whole."""


def pieces(tokens: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """What each token adds to the text, special tokens by their names.

    A character that several tokens share is the piece of the last of them, and the others are empty; what never becomes
    a character is the sign U+FFFD, of the token after which that is sure. Tokens are decoded together with those of the
    piece before, since some tokenizers leave out the space at the beginning of a text.
    """

    def decoded(start: int, end: int) -> str:
        text = tokenizer.decode(list(tokens[start:end]), clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    found: list[str] = []
    before = begin = 0  # the piece before begins at `before`, the one at hand at `begin`
    for end in range(1, len(tokens) + 1):
        context, text = decoded(before, begin), decoded(before, end)
        is_split = text.endswith(UNFINISHED) and end - begin < LONGEST and end < len(tokens)
        if is_split:
            found.append("")
            continue
        found.append(text[len(context) :] if text.startswith(context) else decoded(begin, end))
        before, begin = begin, end
    return found
