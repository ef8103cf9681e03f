"""Traces a tf.function into a GraphDef that can be placed and an OpGraph that can be searched.

Read `capture` first; it calls the others: `signature` tells which calls share a captured step, `iterator_inputs` takes
batches out of iterators, `folding` simplifies the GraphDef, `host_ops` finds what must stay in this process, `phases`
and `function_bodies` describe the ops. `node_def` parses a NodeDef's inputs.

Whether a step in plain Python may be traced is found by `python_state`: `python_code` reads bytecode, `python_impure`
finds what a trace would not repeat, `python_survey` walks through all that the step may read, `python_kinds` tells what
needs a look, and `python_guard` compares that fast before each call. `eager_difference` finds ops that do something
else once they are traced, and `number_use` what a number must not be a tensor for.
"""
