"""A user's training step that stays live while its mode changes: untouched, or placed by one mapping or another.

Read in this order: `variables` keeps the user's variables true while steps run on other devices; `connection` joins the
devices, `recovery` is the way back after a loss, and `device_session` owns them all, for the live steps (`member`) that
share it. `steps` are the user's step for each signature, in each mode. `builder` makes placed steps; `joined_step`
holds what is known of a step once its devices are joined, `scratch_room` whether a mapping may be tried beside what
runs, and `calls` runs each call in the mode of now. `background` is the thread beside the training, and `live_step` is
the whole.
"""
