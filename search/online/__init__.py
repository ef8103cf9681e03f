"""Places a training loop while it runs: searches within its steps, and searches again when the load changes.

Read in this order: `autoplace` wraps a step, by checked `arguments` and `settings`, and `auto_step` is what it returns
(`keras_callback` in `fit`). `controller` writes the script of a training, which `script_run` runs from call to call;
its parts are in `phases`, its measurements in `trials`, and `interfaces` are what it needs of a live step. `diagnose`
finds out what changed. `planners` propose mappings, made in `replan`, or one is `given`; `kept_results` stores what
they came to. `narrator` notes decisions in the `journal`, and `report` shows them. `giving_back` ends what a step
holds.
"""
