"""A mapping becomes a function that runs: every node on its device, tensors sent between them.

`rewrite` builds the placed step, `send_recv` adds transfers and the run order, `variable_copies` moves variables, and
`output_check` compares what the placed step returns with the untouched step.
"""
