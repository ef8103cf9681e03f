"""A campaign for its reader. `terminal` shows it while it runs and where it stands, `markdown` what it found.

Of figures: `curves` is how far the searchers came, `best` the best mapping of a case with what it was made of,
`page_record` all that a page shows, `curves_plot` a picture of convergence; `report` is all of these by format.
For other programs: `optuna_study`, `scalars` (TensorBoard) and `traces` (Perfetto); `export` is these and the tables.
`warm_starts` says what was carried over from other campaigns.
"""
