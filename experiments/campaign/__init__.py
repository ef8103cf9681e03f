"""Offline campaigns: many searches, each measurement stored before the next is asked for, resumed by the same command.

Read in this order: `cells` are what is searched, `spec` the file that names them, `store` what was measured so far (its
`rows` are checked when they are read), and `warm_start` carries over what other campaigns found. `open_case` is what a
search asks of its case, `predicted` the case of files, and `measured/` that of a model on devices, in a process of its
own. `cell_search` is one search, pure; `run` goes through all of them, or has `ray/` search those of files in parallel,
and says what happens to a `progress`. `standing` is where a campaign stands, read from its store, and `export` its
measurements as a table.
"""
