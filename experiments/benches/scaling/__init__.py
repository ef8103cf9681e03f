"""How well the generic performance model predicts networks of other sizes, against black boxes.

`design` chooses what to run, `networks` builds it, `shared_cores` starts workers, `runs` measures it; `judge` fits and
compares. `sgd_clock` measures synchronous SGD against its formula, with `batches` from a file. `run` runs all of it;
`page`, `sgd_page` and `plot` show the results.
"""
