"""The same job on a GPU: the zoo on CPU + GPU, one card as several devices, and a model that does not fit into it.

`tasks` lists what to do, in which order. `run` gives each task its time and asks a process, which measures with
`study`, with kernels compiled `ahead`. `figures` makes facts of the results; `page` and `plot` show them.
"""
