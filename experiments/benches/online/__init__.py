"""Training under autoplace by the clock: what it costs, what it gains, and what load changes and kills do to it.

`run` starts each part (`overhead`, `oracle`, `landings`, `steady`, `kills`) in a process of its own; all use
`training`, some use `neighbours` that take a core away; `judge` makes figures of what they return, `page` shows them.
"""
