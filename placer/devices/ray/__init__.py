"""Ray: the connection of this process to it.

`connection` finds or starts a Ray and takes back what was started; it needs no TensorFlow.
"""
