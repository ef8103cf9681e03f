"""The user's step for one signature, and what runs it: untouched, recorded, tried on scratch variables, or placed.

Read in this order: `modes` are the modes a step can run in; `variant` is the step for one signature, and `variants`
finds it for each call. `untouched` runs the user's own function, and `plain_step` judges it if it is plain Python;
`recorder` records untouched steps, and `scratch_run` repeats them with a placed step. `placed_run` runs placed steps on
the live variables.
"""
