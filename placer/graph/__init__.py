"""What a training step is to Placer: ops, the tensors between them, devices, and which op runs where.

Read `op_graph` (ops and edges), `topology` (devices and links), `mapping` (op -> device) and `coarsen` (ops -> groups)
first; then `pins`, the JSON files (`graph_files`, `mapping_files`), and what an op counts for (`op_counts`, made of
`op_flops` and `op_depth`). Nothing here loads TensorFlow.
"""
