"""How few measured mappings, and seconds, each searcher needs to come near the best known.

`run` takes the figures from the runs of search-quality, `page` and `plot` show them.
"""
