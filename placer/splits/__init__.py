"""Dividing ops of a captured step into parts, with the same mathematics up to the order of sums.

Read in this order: `rules` say along which factors an op of each type can be divided. `plan` names the ops to divide;
`plan_files` reads and writes plans. `step_graph` reads a step's graph. `divide` writes the new graph: `pieces` cuts and
joins its tensors, `exchanging` adds parts that exchange data, and `micro_batches` adds the waits between micro-batches.
`step` makes a captured step of the result. `local_statistics` changes a plan so that each part normalises by its own
examples, which is different mathematics.
"""
