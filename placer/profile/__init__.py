"""Measures what each op costs on each device, from traced steps.

Read in this order: `profiler` has the step run on each device, `traced_session` runs and traces it, `step_trace` reads
what ran when (`trace_clock` repeats steps during which the clock was set), `gpu_trace` does so for GPU streams,
`partial_device` covers devices that cannot run the whole step, `arrivals` adds the time to bring the batch to a GPU,
and `host_values` covers ops that need this process. `operators` times single ops for the operator dataset.
"""
