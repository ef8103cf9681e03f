"""How well the generic performance model predicts networks of other sizes, against black boxes.

`design` chooses what to run, `networks` builds it, `runs` measures it; `judge` fits and compares; `run` is the whole,
`page` and `plot` show it.
"""
