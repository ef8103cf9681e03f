"""Measuring links: `link_pairs` chooses the pairs of devices to measure, `link_probes` measures their transfers, and
`staging` finds the fastest way to send a batch to a GPU.
"""
