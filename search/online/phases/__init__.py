"""The phases of a training's script, which `search.online.controller` runs in turn.

`joining` captures the step and joins the devices; `first_search` tries mappings, and `split_search` those of the step
with ops divided; `adaptation` follows changes of load: it asks steps on `single_devices` where probes see nothing, and
takes a `look` at what was `built_before` and what is proposed, and `untouched_looks` at the untouched step;
`refinement` looks for better mappings while a load stays; `rest` waits where no mapping comes near the untouched step.
Between steps, `lost_devices` takes in again what came back; what may be refused has a `retry_later`, and what is due
after so many steps an `every`.
"""
