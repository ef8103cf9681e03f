"""What a searcher solves and what it is.

`problem` is a graph to place on a topology; `searcher` is the protocol (`ask`, `tell`, `state`, `restore`);
`memory_fit` makes placements fit into memory; `longest_paths` holds what must run before and after each op.
"""
