"""Costs and a mapping become a timeline, a makespan, a largest load.

`simulator` and `max_load` are the two objectives. `reference` defines the makespan in plain Python; `event_loop` is the
same compiled, `fixed_order` a faster first look; `max_load_kernel` belongs to `max_load`. `arrays` is the form compiled
code takes, `priority` the order in which a device takes its ops. `timeline` is the result; `critical_path`,
`memory_peak` and `run_order` read it.
"""
