"""Cells of files side by side over Ray: `ahead` is what one search does away from the store, `side_by_side` the process
that hands out the searches and stores what they find.
"""
