"""`python -m experiments.cli` is `placer`."""

from placer.__main__ import main

main()
