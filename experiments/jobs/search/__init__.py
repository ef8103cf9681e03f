"""The jobs `search` and `compare`: a step is traced, profiled and placed, and its mappings are measured.

Read in this order: `settings` say what to search, and `finding` is what a search finds. `stages` are what is done
before anything is searched, `job` is a search under way, and `splitting` the same of a step whose ops are divided.
`ending` steps the fastest in turn by `side_by_side`, and makes the winner's `timelines`. `main_job` and `compare`,
which finds a `comparison`, are the wholes.
"""
