"""Hostile input: files, stores and command lines that a seeded generator makes from valid ones, and their outcome.

`mutations` changes documents and bytes. `files`, `stores` and `command_lines` say what is made hostile and how it is
used. `judge` uses many inputs and counts those that are mishandled: by a traceback, by taking too long or by taking too
much memory. `python -m experiments.fuzz NAME COUNT` does so in a separate process.

`guided` lets Atheris make the inputs, guided by the branches of our readers that they reach:
`python -m experiments.fuzz.guided all`.
"""
