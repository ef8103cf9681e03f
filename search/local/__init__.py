"""Search by small changes.

`clusters` finds units that belong together, `moves` changes a placement, `hill_climb` and `anneal` (compiled in
`kernels`) improve placements by moves, and `local_search` is the searcher `local`: greedy, then one move at a time.
"""
