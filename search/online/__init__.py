"""Places a training loop while it runs: searches within its steps, and searches again when the load changes.

Read in this order: `autoplace` wraps a step and `auto_step` is what it returns (`keras_callback` in `fit`).
`controller` is the script of a training, whose parts are in `phases` and whose measurements are in `trials`. `planners`
propose mappings, `kept_results` stores what they came to; `narrator` notes decisions in the `journal`, and `report`
shows them.
"""
