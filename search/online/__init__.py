"""Places a training loop while it runs: searches within its steps, and searches again when the load changes.

Read in this order: `autoplace` wraps a step, with checked `arguments` and `settings`, and returns an `auto_step`
(`keras_callback` does so in `fit`). `controller` writes the script of a training, which `script_run` runs from call to
call; the phases of the script are in `phases`, its measurements in `trials`, and `interfaces` says what it needs of a
live step. `diagnose` finds out what changed. `planners`, which are made in `replan`, propose mappings, unless one is
`given_mapping`; `kept_results` stores the results. `narrator` notes decisions in the `journal`, and `report` shows
them. `giving_back` gives back what a step holds.
"""
