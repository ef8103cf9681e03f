"""The generic performance model: a formula for the time of a run from its settings, fitted to any table of runs.

    t(I, E) = (sum_i a_i x_i^p_i) * prod_j y_j^q_j + C

with intrinsic x (kernel size, filters, layers, ...), extrinsic scaling factors y (devices, batch size, ...), and
constants found by differential evolution on a regularised cost (Kavarakuntla et al., "A Generic Performance Model for
Deep Learning in a Distributed Environment", IEEE Access 12, 2024, arXiv 2305.11665). We transcribe the formula and the
method as far as the abstract describes it; all details are our own.

Read in this order: `form` is the formula, `fit` finds its constants, `reading` says what they mean, and `files` saves
them. `sync_sgd` is a formula of another kind, for synchronous SGD.
"""
