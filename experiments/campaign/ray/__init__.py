"""Cells of files searched in parallel over Ray: `ahead` is what one search does away from the store,
`parallel_searches` the process that hands out the searches and stores what they find.
"""
