"""How well step times are predicted before they are run.

`run` measures mappings of every kind and predicts them, `page` shows the errors.
"""
