"""Measuring links: `link_pairs` says which pairs of devices stand for all, `link_probes` measures their transfers."""
