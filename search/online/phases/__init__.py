"""The phases of a training's script, which `search.online.controller` runs in turn.

`joining` captures the step and joins the devices; `first_search` tries mappings, and `split_search` those of the step
with ops divided; `adaptation` follows changes of load; `rest` waits where no mapping comes near the untouched step.
"""
