"""Costs and a mapping become a timeline, a makespan, a largest load.

Read `simulator` and `max_load` first: the two objectives. `reference` defines the makespan in plain Python, `timeline`
is its result, with the peaks of `memory_peak`, and `run_order` reads it. `schedules` names the orders in which a device
takes its ops, and `priority` computes them. `kernels` computes the same, compiled.
"""
