"""Cells of files searched in parallel over Ray: `ahead` is one search in a process of the cluster, and
`parallel_searches` hands out the searches and stores their results.
"""
