"""Worker processes, on this machine or on others: started, waited for no longer than they may take, and brought back.

Read `workers` first, it starts and ends those of this machine, which run `worker`. `standalone` is a worker for other
machines, and `worker_info` what it says of itself; `setting` is the user's own deadline. `deadline` bounds
each call to a worker, and `worker_watch` each wait of a training; the process that ends frozen workers for both is
`guard`. `addresses` finds out whether a worker listens, and `reconnect` brings lost ones back. `leftovers` counts what
closed steps left in workers, and `freed_memory` has them give it back.
"""
