"""The mappings from which searches start.

`baselines` (single devices, random), `nearly_singles` (nearly all units on one device), `expert` (layers, branches),
`lines` (orders of units in which neighbours belong together), `contiguous` (the best cuts of such a line), `parts`
(part i of divided ops on device i), `carried` (a mapping of a similar graph, by `likeness`), `starts` (all rules).
"""
