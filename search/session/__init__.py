"""One search under way: `session` keeps one searcher, made by `registry`; `prediction` predicts for it, `refusals`
counts what cannot run.
"""
