"""The command line: `app` has the commands, `scale` the subcommands of `placer scale`."""

from experiments.cli.app import main as main
