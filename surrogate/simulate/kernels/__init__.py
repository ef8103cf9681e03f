"""Compiled objectives: makespans and largest loads of many mappings at once.

Read `arrays` first, the form that graph, topology and costs take, and `transfer`, what a link costs. `event_loop`
computes what surrogate/simulate/reference.py defines, by `run_state`, how a device takes its ops, and `crossings`, how
tensors go from one device to another. For a search that changes a mapping a little at a time, `rerun` begins where a
change first shows, and `critical_path` finds the ops of a finished run that it has to speed up. `fixed_order` is a
faster estimate of makespans, and `max_load_kernel` computes what surrogate/simulate/max_load.py defines.
"""
