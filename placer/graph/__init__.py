"""The data model: the graph of a training step, the devices, and which op runs where. Loads no TensorFlow.

Read `op_graph` (ops and edges), `topology` (devices and links), `mapping` (op -> device) and `coarsen` (ops -> groups)
first, which has `units` join what shares a device; then `pins` (ops that the user keeps on a device; `pin_matching`
limits the time that matching their patterns may take) and the JSON files (`graph_files`, `mapping_files`). `merging`
has the two algorithms with which things are joined into fewer. `memory_limits` reads the limits that a user gives, and
`held_memory` estimates what a step holds. `schedules` names the run orders, and `defaults` has the default settings of
searches.
"""
