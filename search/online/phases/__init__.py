"""The phases of a training's script, which `search.online.controller` runs in turn.

`joining` captures the step and joins the devices. `first_search` tries mappings, and `split_search` mappings of the
step with divided ops. `adaptation` follows changes of load: it runs steps on `single_devices` if probes see nothing,
takes a `look` at mappings that were `built_before` or are proposed, and `untouched_looks` at the untouched step.
`refinement` looks for better mappings while a load stays. `rest` waits while no mapping comes near the untouched step.
Between steps, `lost_devices` joins devices that came back. `retry_later` tries again what was refused, and `every` says
when something is due that recurs after a number of steps.
"""
