"""Counts what an op computes, from its type and static shapes: floating-point operations (`flops`), how many of them
have to follow one another (`depth`), and both through function calls (`counts`). Loads no TensorFlow.
"""
