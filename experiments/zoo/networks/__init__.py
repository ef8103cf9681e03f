"""The networks, each in a file with a function of its name: `(batch, rng) -> TrainingStep`."""
