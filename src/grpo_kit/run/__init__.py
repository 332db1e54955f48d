"""A run from recipe to folder: set-up, evaluation, files, picture."""
