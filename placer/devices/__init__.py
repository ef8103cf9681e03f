"""Opening the devices that a step can use, and measuring them.

`specs` reads devices as users name them. Read `opening` first, which finds devices or starts them, then `cluster`, what
is open: `logical` divides this process's own devices, `workers` starts processes that are devices, ends those that do
not answer, and brings lost ones back; `joining` joins them to this process, over `connecting`, and `ports` keeps
strangers from them. `ray` has Ray start workers on other machines. `links` measures what lies between devices, once;
`load` finds out later what has become slower. `memory_room` asks devices whether a step has room. `process_resources`
tells what joining would drop, and `shared_datasets` which datasets would lose what they keep. `variables` makes
variables on a device, `gpu_wait` waits for kernels, `host` is the machine.
"""
