"""Finds what a function's code reads and writes by name, without running it.

`bytecode` walks through Python's instructions, with a method for each, in a `frame` that has the stack and the local
names. It collects `reads`, as `paths` that lead to objects. `instructions` answers questions that need no stack,
`names` lists the functions that read on behalf of their caller, and `source_text` says where AutoGraph would misread
the source.
"""
