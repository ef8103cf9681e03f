"""Worker processes on this machine or on others: starting them, bounding each wait for them, and bringing them back.

Read `workers` first, which starts and ends the workers of this machine; each of them runs `worker`. `standalone` is a
worker for other machines, and `worker_info` what it reports of itself. `setting` is the user's own deadline. `deadline`
bounds each call to a worker, and `worker_watch` each wait of a training; for both, the process `guard` ends frozen
workers. `addresses` finds out whether a worker listens, and `reconnect` brings lost ones back. `leftovers` counts what
closed steps left in workers, and `freed_memory` makes workers return that memory.
"""
