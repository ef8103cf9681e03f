"""The generic performance model: a formula for the time of a run from what was set in it, fitted to any table of runs.

    t(I, E) = (sum_i a_i x_i^p_i) * prod_j y_j^q_j + C

with intrinsic x (kernel size, filters, layers, ...), extrinsic scaling factors y (devices, batch size, ...), and
constants found by differential evolution on a regularised relative error (Kavarakuntla et al., "A Generic Performance
Model for Deep Learning in a Distributed Environment", 2023/24; the formula and the method as its abstract gives them).
"""
