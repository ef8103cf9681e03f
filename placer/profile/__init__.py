"""Measures what each op costs on each device, from traced steps.

Read in this order: `profiler` runs the step on each device, `step_trace` reads what ran when, `gpu_trace` does so for
GPU streams, and `partial_device` covers devices that cannot run the whole step. `operators` times single ops for the
operator dataset.
"""
