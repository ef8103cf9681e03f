"""What a step reads of Python's state, and whether all of it can be compared before each call.

Read `state` first, it answers for a plain step. `code` finds what functions read and write by name, as paths, and what
AutoGraph makes otherwise of their source. `entered` follows these paths to objects, `impure` finds what a trace would
not repeat, `bindings` which lasting objects functions pass to each other, `sought` says what the step's code reads of
objects, `survey` walks through all that it may read, `arguments` finds what of it a call brings, `library_names` which
attributes libraries may read of them, `kinds` tells what needs a look, and `guard` compares that fast before each
call. `settings` are what the libraries are set to, and `streams` the random numbers that the whole program shares.
"""
