"""Evaluation of a model on questions with known answers: what `grpo-kit eval` and the evaluation in training share."""
