"""Uses: the zoo, the commands and what they report, the benchmarks."""
