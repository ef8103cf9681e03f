"""The command line: `app` has the commands, `scale` and `campaign` their subcommands, `failures` one-line errors."""

from experiments.cli.app import main as main
