"""Recipes compared over seeds: a plan, its runs in worker processes, paired statistics."""
