"""How far two policies propose the same next tokens: the output-token overlap ratio, and what it speaks for."""

from grpo_kit.overlap.ratio import LIKELIEST, Comparison, compare, likeliest, overlap_ratio

__all__ = ["LIKELIEST", "Comparison", "compare", "likeliest", "overlap_ratio"]
