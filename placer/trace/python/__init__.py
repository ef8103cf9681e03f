"""Finds what a step reads of Python's state, and whether all of it can be compared before each call.

Read `state` first; it answers for a plain step. `code` finds the paths that functions read and write, and where
AutoGraph misreads their source. `entered_functions` follows these paths to objects, `impure` finds what a trace would
not repeat, `bindings` finds the lasting objects that functions pass to each other, and `attribute_names` says what the
step's code reads of objects. `survey` walks through everything that the code may read, `arguments` finds the objects
that a call brings, `library_names` tells which attributes of objects libraries may read, and `kinds` which values need
a look. `guard` compares all of it fast before each call. `settings` reads the settings of the libraries, and `streams`
finds the random streams of the whole program.
"""
