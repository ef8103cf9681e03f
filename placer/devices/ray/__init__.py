"""This process's connection to Ray, and workers that Ray starts on whole nodes of a cluster.

`connection` connects to a Ray, or starts one and ends it again. `spec` parses what a user writes, `nodes` reserves
nodes, and `node_worker` runs on each node. The `lease`, a process, holds the nodes and their workers, and `ray_workers`
holds the lease. Nothing here needs TensorFlow.
"""
