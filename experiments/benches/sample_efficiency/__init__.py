"""How few measured mappings a search needs to come near the best known; made of the runs of search-quality.

`run` computes the gaps, `page` shows them, `plot` draws the curves.
"""
