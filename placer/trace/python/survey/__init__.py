"""Walks once through all that a step may read of Python's state, for tokens to compare and a guard that compares fast.

Read `survey` first: it chooses, for each value, the visit that looks into it. The visits are in `functions`, `objects`,
`classes`, `modules`, `proxies` and `containers`; each notes what it finds in the `walk`, which queues the visits that
follow. `caches` and `getters` say what functions in C keep and read, `callbacks` says which methods of Keras's
callbacks code may call, and `stand_ins` what code may read of steps that Placer has wrapped.
"""
