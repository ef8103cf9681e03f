"""A user's training step that stays live while its mode changes: untouched, or placed by one mapping or another.

Read in this order: `variables` keeps the user's variables up to date while steps run on other devices. `connection`
joins the devices, `recovery` restores the training after a loss, and `device_session` owns all three for the live steps
(`member`) that share it. `steps` has the user's step for each signature, in each mode. `builder` makes placed steps.
`joined_step` holds what is known of a step once its devices are joined, `scratch_room` says whether there is memory to
try a mapping beside the running step, and `calls` runs each call in the current mode. `background` is the thread beside
the training, and `live_step` puts everything together.
"""
