"""Chooses which ops of a step to divide: plans are made by policies, and judged by what the simulator predicts of them.

`candidates` makes plans: each decides which variables are divided, `variable_groups` with which others, `propagate`
spreads that over the step, and `copying` has parts do for themselves what costs less than a message. `pipeline` takes
micro-batches. `estimate` derives the costs of parts from those of the whole ops, and `choose` compares what searches on
these promise.
"""
