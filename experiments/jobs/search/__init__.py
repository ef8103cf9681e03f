"""The jobs `search` and `compare`: a step is traced, profiled and placed, and its mappings are measured.

Read in this order: `settings` say what to search, and `finding` is the result of a search. `stages` come before a
search, `job` is a search under way, which begins with the `singles`, and `splitting` is a search of a step whose ops
are divided. `ending` steps the fastest mappings in turn with `side_by_side`, and makes the winner's `timelines`.
`main_job` is the whole job of `placer search`, and `compare`, which returns a `comparison`, that of `placer compare`.
`early_end` has the words for an error that ends either.
"""
