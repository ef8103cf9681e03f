"""Compiled annealing: `rng_state` for random numbers, `space` for what may go where, `draws` for moves, as often as
`move_shares` says; then one chain for each objective: `makespan_chain` simulates each placement from where it differs,
`load_chain` adds up what a move changes.
"""
