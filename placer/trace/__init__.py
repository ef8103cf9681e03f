"""Traces a tf.function into a GraphDef that can be placed and an OpGraph that can be searched.

Read `capture` first; it calls the others: `tracing` runs TensorFlow's trace, `signature` tells which calls share a
captured step, `iterator_inputs` takes batches out of iterators, `graph_def` simplifies and describes the GraphDef,
`random_streams` moves its draws, `host_ops` finds what must stay in this process, `owners` whose variables they are,
and `build_graph` makes the OpGraph, with what each op computes (`op_counts`). `effects` and `untouchable` tell which
steps must run as they are, `keras_ties` what is tied to tensors as attributes, and `variable_parts` says how a divided
variable lies. Whether a step in plain Python may be traced is found by `python`, and by `eager`, which knows what such
a step does otherwise once it is traced. `arrays` makes tensors of NumPy's arrays.
"""
