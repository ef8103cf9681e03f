"""Turns a mapping into a function that runs: every node on its device, tensors sent between them.

Read in this order: `rewrite` builds the placed step, `ordered_sums` makes its sums round alike under every mapping,
and `send_recv` adds transfers and the run order. `variable_copies` copies many variables at once, and `fingerprints`
tells their values apart without fetching them; both use functions that `kept_functions` keeps. `outputs` reads what a
step returns and names its failures, `untouched_outcome` runs the untouched step on variables of its own, and
`agreement` decides whether both did the same. `local_agreement` decides it if parts of a batch normalise by their own
statistics.
"""
