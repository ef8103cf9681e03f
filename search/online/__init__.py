"""Places a training loop while it runs: searches within its steps, and searches again when the load changes.

Read in this order: `autoplace` wraps a step and `auto_step` is what it returns (`keras_callback` in `fit`).
`controller` is the script of a training: `first_search`, `split_search` for divided ops, `adaptation` when the load
changes, and `rest` where no mapping comes near the untouched step. `planners` propose mappings, `kept_results`
stores what they came to; `journal` and `report` say what was done.
"""
