"""How good the mappings are that a search delivers, against every other searcher and against all there are.

`run` compares searchers, `enumerated` measures spaces that are small enough, `page` shows both.
"""
