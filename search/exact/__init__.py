"""Optimal mappings, and proofs that they are optimal.

Read `exact` first, the searcher. `bounds` computes lower bounds for all mappings (with `divided_work` and
`forced_crossings`). `branch_and_bound` is the compiled tree search: `tree` holds the data that its nodes share, and
`node_bounds` computes lower bounds for all mappings below a node.
"""
