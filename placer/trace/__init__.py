"""A tf.function becomes a GraphDef that can be placed, and an OpGraph that can be searched.

`capture` is the way through: `signature` says which calls are alike, `iterator_inputs` takes batches out of iterators,
`folding` simplifies the GraphDef, `host_ops` finds what must stay in this process, `phases` and `function_bodies`
describe the ops. `node_def` knows how a NodeDef writes its inputs.
"""
