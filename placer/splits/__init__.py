"""Divides ops of a captured step into parts, with the same mathematics up to the order of sums.

Read in this order: `rules` say along which factors an op of each type can be divided. `plan` names the ops to divide,
`plan_files` reads and writes that. `step_graph` reads a step's graph, `divide` writes the new one with the tensors that
`pieces` cuts and joins, `exchanging` the parts that tell each other something, `micro_batches` the waits between
micro-batches, and `step` makes of it a captured step like any other. `local_statistics` changes a plan so that each
part normalises by its own examples, which is other mathematics.
"""
