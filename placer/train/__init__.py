"""A user's training step that stays live while the way it runs changes.

`live_step` is the whole; `variant` is the step for one signature and `modes` are the ways to run it. `untouched` runs
the user's own function; `recorder` keeps its steps and `trial_run` repeats them on a placed one. `session` owns the
devices and, through `replicas`, the replicas of variables; `variable_hooks` notices every use of a variable.
"""
