"""One running search: `session` keeps one searcher, made by `registry`; `prediction` predicts for it, `refusals` counts
mappings that cannot run.
"""
