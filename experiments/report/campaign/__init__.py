"""Reports on a campaign. `terminal` shows its progress and its standing, and `markdown` its results.

For figures, `curves` follows the progress of the searchers, `best` finds the best mapping of a case with its problem,
`page_record` makes the record that a page shows, and `curves_plot` draws convergence; `report` makes a report in any
format. For other programs there are `optuna_study`, `scalars` (TensorBoard) and `traces` (Perfetto); `export` writes
these and the tables. `warm_starts` says what was carried over from other campaigns.
"""
