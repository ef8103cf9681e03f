"""Compiled objectives: makespans and largest loads of many mappings at once.

Read `arrays` first (graph, topology and costs as arrays), then `transfer` (the cost of a link). `event_loop` computes
the makespan that surrogate/simulate/reference.py defines. It uses `run_state` (how a device takes its ops) and
`crossings` (how tensors go from one device to another). Two modules serve a search that changes a mapping a little at a
time: `rerun` begins a run where the change first matters, and `critical_path` finds the ops of a finished run that the
search has to speed up. `fixed_order` estimates makespans faster. `max_load_kernel` computes the objective that
surrogate/simulate/max_load.py defines.
"""
