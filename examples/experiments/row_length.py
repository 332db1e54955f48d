"""Up to which length of a row the product of its ratios can correct for another writer, and what is left beyond.

The small model writes rows; the log-ratios large/small of their tokens are measured. Longer rows are whole rows laid
end to end, drawn with replacement: as if a long row went on as its beginning did. For each length and correction:

- kept: the mean weight. Without bounds it is 1 in expectation; what is missing with bounds is the bias that they bring.
- share: the effective sample size, (sum w)^2 / sum w^2, as a share of the tokens. Where weights have heavy tails it is
  flattered: the rare row with a great weight is missing.

Run it: python examples/experiments/row_length.py [--small DIR --large DIR]
"""

from typing import Annotated

import torch
import typer
from einops import rearrange
from torch import Tensor

from grpo_kit import Arithmetic, ImportanceWeight, PolicySpec, TransformersSampler
from grpo_kit.data import encode_prompts
from grpo_kit.diagnostics import effective_sample_size
from grpo_kit.policies import load_policy

LENGTHS = (25, 50, 100, 200, 400, 800, 3200)
ROWS = 2000
CORRECTIONS = {
    "row, at most 5": ImportanceWeight(level="sequence", high=5),
    "row, no bound": ImportanceWeight(level="sequence", high=torch.inf),
    "prefix, at most 5": ImportanceWeight(level="prefix", high=5),
    "window of 25, at most 5": ImportanceWeight(level="window", window=25, high=5),
    "token, at most 2": ImportanceWeight(level="token", high=2),
}
MIXED = "row, at most 5; a quarter of the rows by the large one"


def log_ratios(small: str, large: str, questions: int, samples: int) -> list[Tensor]:
    """Of each row that the small model writes, log large - log small of its tokens."""
    writer, reader = (
        load_policy(name, PolicySpec(model=model), live=False) for name, model in (("small", small), ("large", large))
    )
    sampler = TransformersSampler(policy="small", samples=samples, max_new_tokens=48)
    prompts = encode_prompts(
        Arithmetic(rows=questions, seed=12)(), writer.tokenizer, max_tokens=64, needed=["answer"]
    ).take(range(questions))
    rollouts = sampler(prompts, {"small": writer}, torch.Generator().manual_seed(0))
    difference = reader.score_all(rollouts).logprobs - writer.score_all(rollouts).logprobs
    return [own[counted] for own, counted in zip(difference, rollouts.mask, strict=True) if counted.any()]


def laid_end_to_end(rows: list[Tensor], length: int, number: int, generator: torch.Generator) -> Tensor:
    """`number` long rows of `length` tokens, of whole rows drawn with replacement, the last one cut."""
    shortest = min(map(len, rows))
    drawn = torch.randint(len(rows), (number, -(-length // shortest)), generator=generator).tolist()
    return torch.stack([torch.cat([rows[place] for place in places])[:length] for places in drawn])


def kept_and_share(weights: Tensor) -> tuple[float, float]:
    """Mean of the weights, and their effective sample size as a share."""
    return float(weights.mean()), effective_sample_size(weights, torch.ones_like(weights, dtype=torch.bool))


def of_length(log_ratio: Tensor) -> dict[str, tuple[float, float]]:
    """Kept and share, by correction, of rows of one length."""
    mask = torch.ones_like(log_ratio, dtype=torch.bool)
    found = {name: kept_and_share(correction(log_ratio, mask)) for name, correction in CORRECTIONS.items()}
    by_large = rearrange(torch.arange(len(mask)) % 4 == 0, "row -> row 1")  # written by the large one: no correction
    mixed = CORRECTIONS["row, at most 5"](log_ratio.masked_fill(by_large, 0), mask)
    return found | {MIXED: kept_and_share(mixed)}


def main(
    small: Annotated[str, typer.Option(help="The writer: a folder or tiny:small.")] = "tiny:small",
    large: Annotated[str, typer.Option(help="The model that learns: a folder or tiny:large.")] = "tiny:large",
    questions: Annotated[int, typer.Option(help="Questions answered.")] = 256,
    samples: Annotated[int, typer.Option(help="Rows for each.")] = 16,
) -> None:
    """Print kept and share for every length and correction."""
    rows = log_ratios(small, large, questions, samples)
    tokens = torch.cat(rows)
    print(f"{len(rows)} rows of {len(tokens) / len(rows):.1f} tokens, KL(small || large) {-tokens.mean():.3f} a token")
    print("\n| tokens a row | " + " | ".join([*CORRECTIONS, MIXED]) + " |\n|---:|" + "---:|" * (len(CORRECTIONS) + 1))
    generator = torch.Generator().manual_seed(0)
    for length in LENGTHS:
        found = of_length(laid_end_to_end(rows, length, ROWS, generator))
        print(f"| {length} | " + " | ".join(f"{kept:.2g} / {share:.1%}" for kept, share in found.values()) + " |")


if __name__ == "__main__":
    typer.run(main)
