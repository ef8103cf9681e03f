"""What the world does to Placer, done to it on purpose: how often it survives, and what is lost or left behind.

`searches` starts `placer search` as a user does and injects a fault in one of its stages; `trainings` does the same to
a training under autoplace, whose own process is `live`; `outputs` names files that cannot be written; `hostile` counts
what `experiments.fuzz` finds. `commands` runs a command of which lines are read while it runs, `leavings` finds what a
process left; `run` asks all, `page` shows what was seen.
"""
