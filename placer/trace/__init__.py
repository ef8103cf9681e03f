"""Traces a tf.function into a GraphDef that can be placed and an OpGraph that can be searched.

Read `capture` first; it calls the others: `tracing` runs TensorFlow's trace, `signature` tells which calls share a
captured step, `arrays` makes tensors of NumPy arrays, `declared` does so for a declared input signature,
`iterator_inputs` takes batches out of iterators, `graph_def` simplifies and describes the GraphDef, `random_streams`
makes its random draws stateless, `host_ops` finds the ops that must stay in this process, `handle_owners` finds the
variables that it uses, and `build_graph` makes the OpGraph, with what each op computes (`op_counts`). `effects` and
`untouchable` tell which steps must run as they are, `keras_ties` finds what is tied to tensors as attributes, and
`variable_parts` says how a divided variable is cut. `python` and `eager` tell whether a step in plain Python may be
traced; `eager` knows what such a step does differently once it is traced.
"""
