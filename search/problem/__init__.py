"""The problem that searchers solve, and the base of every searcher.

Read `problem` first, a graph to place on a topology, then `searcher`, the base class (`ask`, `tell`, `state`,
`restore`). `alike_devices` tells which devices differ only in their names, `memory_fit` makes placements fit into
memory, `longest_paths` computes the least seconds before and after ops.
"""
