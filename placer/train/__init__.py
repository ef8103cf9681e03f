"""A user's training step that stays live while its mode changes: untouched, or placed by one mapping or another.

Read in this order: `modes` are the modes a step can run in; `variant` is the step for one signature, and `variants`
finds it for each call. `untouched` runs the user's own function, and `plain_step` judges it where it is plain Python;
`recorder` keeps its steps and `trial_run` repeats them on a placed one. `replicas` and `variable_hooks` keep the user's
variables true, and `self_test` checks that they can; `connection` joins the devices, `step_log` remembers the way back
after a loss, and `session` owns all three. `builder` makes placed steps, and `placed_run` runs them; `joined_step`
holds what is known of a step once its devices are joined, `background` is the thread beside the training, and
`live_step` is the whole.
"""
