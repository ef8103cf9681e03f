"""Turns a mapping into a function that runs: every node on its device, tensors sent between them.

Read in this order: `rewrite` builds the placed step, `send_recv` adds transfers and the run order, `variable_copies`
copies many variables at once, and `output_check` compares what placed and untouched steps return.
"""
