"""The main job on every zoo network: the delivered mapping against the best single device and the untouched step."""
