"""Faults that Placer may meet, injected on purpose: how often it survives, and what is lost or left behind.

`searches` starts `placer search` as a user does and injects a fault in one of its stages; `trainings` does the same to
a training under autoplace, whose own process is `live`; `outputs` names files that cannot be written; `hostile` counts
what `experiments.fuzz` finds. `commands` runs a command and reads its lines meanwhile, `leavings` finds what a process
left behind, `run` runs all, and `page` shows the results.
"""
