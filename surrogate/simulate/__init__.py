"""Simulation: the timeline, makespan and largest load that follow from costs and a mapping.

Read `simulator` and `max_load` first: the two objectives. `reference` defines the makespan in plain Python. `timeline`
is its result, with the memory peaks of `memory_peak`; `run_order` is read off a timeline. `placer.graph.schedules`
names the orders in which a device takes its ops, and `priority` computes them. `kernels` computes both objectives,
compiled.
"""
