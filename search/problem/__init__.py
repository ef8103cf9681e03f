"""The problem that searchers solve, and what every searcher is.

Read `problem` first, a graph to place on a topology, then `searcher`, the base class (`ask`, `tell`, `state`,
`restore`). `alike` tells which devices differ in nothing but the name, `memory_fit` makes placements fit into memory,
`longest_paths` computes what must run before and after ops.
"""
