"""Cases of real models on real devices, measured by the clock.

Read in this order: `profiled` is the stored data that a search depends on. `session` measures, in a separate process
that `process` starts and asks; only that process loads TensorFlow. `case` is shared by the searches of a case, and
`mappings` writes the best mappings of a store to files.
"""
