"""The operator dataset: what decides an op's time, how it is measured, and the rows it becomes.

`describe` reads operators off a graph, `probes` and `shapes` make single ops of them, `timing` runs these, `drift`
removes the machine's mood, `operator_profile` does all of it for one network, and `dataset` holds the rows.
"""
