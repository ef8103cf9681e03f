"""How fast the simulator, screening and HEFT are, and how well screening ranks mappings.

`run` measures on random layered graphs, `page` shows the figures.
"""
