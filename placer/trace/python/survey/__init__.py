"""One walk through all that a step may read of Python's state, as tokens to compare, and a guard that compares fast.

Read `survey` first: it chooses, for each value, the visit that looks into it. The visits stand in `functions`,
`objects`, `classes`, `modules`, `proxies` and `containers`; each notes what it finds in the `walk`, which queues the
visits that follow. `caches` and `getters` say what functions of C's keep and read, `callbacks` and `stand_ins` what
code may call of Keras's callbacks, and read of steps that Placer has wrapped.
"""
