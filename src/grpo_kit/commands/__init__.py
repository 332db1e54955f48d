"""What the commands of `grpo-kit` do that look things up: list, show, init, samples, completion."""
