"""The phases of a training's script, which `search.online.controller` runs in turn.

`joining` captures the step and joins the devices; `first_search` tries mappings, and `split_search` those of the step
with ops divided; `adaptation` follows changes of load, by steps on `single_devices` where probes see nothing, and
`refinement` looks for better mappings while one stays; `rest` waits where no mapping comes near the untouched step.
"""
