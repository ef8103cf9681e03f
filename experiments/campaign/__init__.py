"""Offline campaigns: many searches, each measurement stored before the next is asked for, resumed by the same command.

Read in this order: `cells` are the searches of a campaign, and `spec` is the file that names them. `store` holds what
was measured so far (`schema` has its tables; `rows` are checked when they are read), and `warm_start` carries over what
other campaigns found. `open_case` is the interface between a search and its case; `predicted` is a case of files, and
`measured/` is a model on devices, in a separate process. `cell_search` is one search, without side effects. `run` goes
through all searches, or has `ray/` search the cells of files in parallel, and reports to a `progress`. `standing` reads
from the store how far a campaign is, and `export` writes its measurements as a table.
"""
