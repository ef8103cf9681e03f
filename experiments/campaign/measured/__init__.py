"""Cases of real models on real devices, measured by the clock.

Read in this order: `profiled` is what a search depends on, as it is stored. `session` measures, in a process of its own
that `process` starts and asks; that one alone loads TensorFlow. `case` is what the searches of a case share, and
`mappings` takes the best ones out of a store.
"""
