"""The generic performance model: a formula for the time of a run from what was set in it, fitted to any table of runs.

    t(I, E) = (sum_i a_i x_i^p_i) * prod_j y_j^q_j + C

with intrinsic x (kernel size, filters, layers, ...), extrinsic scaling factors y (devices, batch size, ...), and
constants found by differential evolution on a regularised cost (Kavarakuntla et al., "A Generic Performance Model for
Deep Learning in a Distributed Environment", IEEE Access 12, 2024, arXiv 2305.11665). Transcribed are the formula and
what the abstract says of the method; all details are our own.

Read in this order: `form` is the formula, `fit` finds its constants, `reading` says what they mean, and `files` keeps
them. `sync_sgd` is a formula of another kind, for synchronous SGD.
"""
