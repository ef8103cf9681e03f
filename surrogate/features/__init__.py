"""What the regressors see of a mapping or a graph.

`mapping_features` describes a mapping, by `partitions` (one share a device); `spoc` describes a graph.
"""
