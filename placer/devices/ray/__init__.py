"""Ray: this process's connection to it, and workers that it starts on whole nodes of a cluster.

`connection` finds or starts a Ray and takes back what was started. `spec` is what a user writes, `nodes` reserves
nodes, and `node_worker` runs on each; the `lease`, a process, holds all of that, and `ray_workers` holds the lease.
Nothing here needs TensorFlow.
"""
