"""The uses of Placer: the zoo of networks, the commands and their reports, and the benchmarks. `versions` names the
software behind a result.
"""
