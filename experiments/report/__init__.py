"""Facts as tables, charts and files.

What a command prints stands in `tables` (search, plan, simulate), `standings` (compare), `mappings` (show, diff),
`profile`, `scaling`, `spoc` and `topology` (devices). `result_files` and `report_files` write its files,
`search_record` fills the page of a search, `plots` draws, and `gantt` and `versions` have facts for them. `console` and
`progress` write to the terminal; `text` formats names and tables for all.
"""
