"""The command line: `app` has the commands, `scale` and `campaign` the subcommands of their own."""

from experiments.cli.app import main as main
