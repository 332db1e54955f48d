"""Grading: is this completion's final answer the gold answer? Without torch, from any thread, and never hanging."""

from grpo_kit.grading.extract import final_answer
from grpo_kit.grading.grade import Grade, grade, grade_all, unreadable

__all__ = ["Grade", "final_answer", "grade", "grade_all", "unreadable"]
