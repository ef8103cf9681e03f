"""Opening the devices that a step can use, measuring them, and reconnecting lost ones.

Read `cluster` first, it opens them: `logical` divides this process's own devices, `workers` starts processes that run
`worker`. `link_probes` measures the links once; `load_probes` and `load_reading` find out later what has become slower.
`reconnect` brings lost workers back. `variables` makes variables on a device, `gpu_wait` waits for kernels, `machine`
names the machine.
"""
