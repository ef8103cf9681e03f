"""Hostile input: files, stores and command lines that a seeded generator makes of valid ones, and what comes of them.

`mutations` changes documents and bytes. `files`, `stores` and `command_lines` say what is made hostile and how it is
used; `judge` uses so many of them and counts what is mishandled: a traceback, an end that never comes, memory without
bound. `python -m experiments.fuzz NAME COUNT` does so in a process of its own.

`guided` has Atheris make them, by the branches of our readers that they reach: `python -m experiments.fuzz.guided all`.
"""
