"""The command line.

`app` has most commands; `bench`, `campaign`, `mappings`, `models` and `scale` (whose arguments `scale_words` reads)
have the others. `options` are shared by several commands. Failures end in one line: `usage` explains what typer
refuses, `failures` what libraries raise, and `last_words` the end of a process from outside. `streams` and `quiet` keep
stdout and stderr clean.
"""

from experiments.cli.app import main as main
