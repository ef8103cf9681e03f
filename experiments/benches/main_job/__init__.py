"""The main job on every zoo network: the delivered mapping against the best single device.

`run` searches each network, `page` shows the figures.
"""
