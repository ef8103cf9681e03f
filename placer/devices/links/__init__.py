"""Measuring links: `link_pairs` says which pairs of devices stand for all, `link_probes` measures their transfers, and
`staging` how a batch gets to a GPU soonest.
"""
