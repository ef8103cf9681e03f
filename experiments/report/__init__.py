"""Facts as tables, charts and files.

The output of each command is made in `search_tables` (search, plan, simulate), `comparison` (compare), `mappings`
(show, diff), `profile`, `scaling`, `spoc` and `topology` (devices). `result_files` and `report_files` write files,
`search_record` fills the page of a search, `plots` draws, and `gantt` draws a step as text. `console`
and `progress` write to the terminal; `text` formats names and tables for all.
"""
