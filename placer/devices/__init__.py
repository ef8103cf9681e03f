"""Opening the devices that a step can use, and measuring them.

Read `cluster` first, it opens them: `logical` divides this process's own devices, `workers` starts processes that are
devices, ends those that do not answer, and brings lost ones back; `joining` joins them to this process. `ray` has Ray
start workers on other machines. `link_pairs` says which links `link_probes` measures once; `load_probes` and
`load_reading` find out later what has become slower. `process_resources` tells what joining would drop. `variables`
makes variables on a device, `gpu_wait` waits for kernels, `machine` names the machine.
"""
