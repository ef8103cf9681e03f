"""How good the mappings that a search delivers are, against those of every other searcher and against all mappings.

`run` compares searchers, `enumerated` measures spaces that are small enough, `page` shows both.
"""
