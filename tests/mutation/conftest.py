"""Programs of `make mutants`, not tests: they need cosmic-ray."""

collect_ignore = ["run.py", "mutants.py"]
