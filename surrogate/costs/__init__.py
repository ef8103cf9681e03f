"""The cost of each op on each device, as a matrix."""
