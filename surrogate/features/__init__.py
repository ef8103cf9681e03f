"""The features of a mapping or a graph, which the regressors learn from.

`mapping_features` describes a mapping, by means of `partitions` (one per device); `spoc` describes a graph.
"""
