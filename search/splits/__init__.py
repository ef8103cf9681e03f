"""The choice of ops to divide: policies make plans of splits, and the simulator's predictions judge them.

`candidates` makes plans. Each policy decides which variables are divided. `variable_groups` says which variables must
be divided together, `propagate` spreads the division over the step, and `copying` copies cheap ops to each part where
this costs less than a message. `pipeline` makes plans of micro-batches. `estimate` derives the costs of parts from
those of whole ops, and `choose` compares the best mappings that searches on these costs find.
"""
