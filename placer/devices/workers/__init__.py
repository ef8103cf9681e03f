"""Worker processes, on this machine or on others: started, waited for no longer than they may take, and brought back.

Read `workers` first, it starts and ends those of this machine, which run `worker`. `standalone` is a worker for other
machines, `worker_info` what it says of itself, and `binding` keeps ports from other networks,
with `listen_watch` even before they listen. `deadline` bounds each
call to a worker, and `worker_watch` each wait of a training; the process that ends frozen workers for both is `guard`.
`addresses` finds out whether a worker listens, and `reconnect` brings lost ones back.
"""
