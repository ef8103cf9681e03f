"""`python -m experiments.cli` is `placer`."""

from experiments.cli.app import main

main()
