"""Compiled objectives: makespans and largest loads of many mappings at once.

Read `arrays` first, the form that graph, topology and costs take, and `transfer`, what a link costs. `event_loop`
computes what surrogate/simulate/reference.py defines; its parts are `run_state`, how a device takes its ops, and
`crossings`, how tensors go from one device to another. `fixed_order` is a faster estimate of the same, and
`max_load_kernel` computes what surrogate/simulate/max_load.py defines.
"""
