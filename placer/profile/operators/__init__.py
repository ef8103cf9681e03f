"""The operator dataset: descriptions of ops, and measured times of each by itself and inside steps.

Read in this order: `dataset` has the rows, `describe` reads operators from a graph (`fusion` says which kernels do the
work of two ops), `probes` and `shapes` turn them into single ops to run, `timing` runs these, `drift` removes the
machine's slow phases, and `operator_profile` does all of it for one network. `yardsticks` is one more network, whose
times say how fast a device is.
"""
