"""The bench `operators`: how well times of ops are predicted, and what plans by predicted times are worth.

`held_out` has the error of single ops on shapes and networks that no fit saw. `left_out` takes one network after the
other out of the dataset, predicts its step, places it by predicted and by profiled costs, and steps both in turn.
`plot` draws the errors of both.
"""
