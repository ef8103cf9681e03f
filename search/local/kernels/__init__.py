"""Compiled annealing.

`rng_state` makes random numbers, `space` says which unit may go where, and `draws` draws moves with the probabilities
of `move_shares`. There is one chain for each objective: `makespan_chain` simulates each placement from the first
difference on, and `load_chain` adds up only what a move changes.
"""
