"""Divides ops of a captured step into parts, with the same mathematics up to the order of sums.

`way` says what a rule says of one op; `elementwise`, `linear`, `reductions`, `moving` and `resources` are the rules,
`table` finds them by op type. `plan` names the ops to divide, `plan_files` reads and writes that. `step_graph` reads a
step's graph, `divide` writes the new one with the tensors that `pieces` cuts and joins, and `step` makes of it a
captured step like any other.
"""
