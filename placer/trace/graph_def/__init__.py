"""Simplifies and describes the GraphDef of a traced step.

Read `folding` first: it simplifies the graph, while `access_order` keeps ops on one variable in their order. `phases`
and `function_bodies` describe its ops, `content` digests what they compute, `node_def` parses a NodeDef, and
`as_function` makes a callable of the whole graph.
"""
