"""Which regressor predicts step times of unseen mappings best.

`run` measures and cross-validates, `page` shows the table, `plot` draws it.
"""
