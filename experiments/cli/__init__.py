"""The command line.

`app` has the commands, `bench`, `campaign`, `mappings` and `scale` (its arguments read by `scale_words`) the others;
`options` are what several take. Bad input ends in one line: `usage` says what typer refuses, `failures` what the
commands do, `last_words` what ended a process from outside. `streams` and `quiet` keep stdout and stderr clean.
"""

from experiments.cli.app import main as main
