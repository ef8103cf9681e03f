"""Opening the devices that a step can use, and measuring them.

Read `opening` first, which finds or starts devices, then `cluster`, which holds the open devices. `specs` parses
devices as users name them. `logical` divides this process's own devices. `workers` starts processes that serve as
devices, ends those that do not answer, and restarts lost ones. `joining` joins workers to this process through
`connecting`, and `ports` keeps strangers away from them. `ray` has Ray start workers on other machines. `links`
measures the links between devices, once; `load` finds out later what has become slower. `memory_room` asks devices
whether a step has room. `process_resources` tells what joining would drop, and `shared_datasets` which datasets would
lose what they keep. `variables` makes variables on a device, `gpu_wait` waits for kernels, and `host` describes this
machine.
"""
