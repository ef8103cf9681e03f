"""Places a training loop while it runs: searches within its steps, and searches again when the load changes."""
