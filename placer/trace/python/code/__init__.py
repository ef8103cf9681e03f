"""What a function's code reads and writes by name, found without running it.

`bytecode` walks through Python's instructions, each a method, in a `frame` that has the stack and the local names. What
it finds are `reads`, by the `paths` that lead to objects. `instructions` answers what needs no stack, `names` lists the
functions that read on behalf of their caller, and `source_text` says what AutoGraph would make otherwise of the source.
"""
