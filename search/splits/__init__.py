"""Chooses which ops of a step to divide: plans are made by policies, and judged by what the simulator predicts of them.

`candidates` makes plans: each decides which variables are divided, and `propagate` spreads that over the step.
`estimate` derives the costs of parts from those of the whole ops, and `choose` compares what searches on these promise.
"""
