"""The user's step for one signature, and what runs it: untouched, recorded, tried on scratch variables, or placed.

Read in this order: `modes` are the modes a step can run in; `variant` is the step for one signature, and `variants`
finds it for each call. `untouched` runs the user's own function, and `plain_step` judges it where it is plain Python;
`recorder` keeps its steps, and `scratch_run` repeats them on a placed one. `placed_run` runs placed steps on the live
variables.
"""
