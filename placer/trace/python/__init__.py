"""Whether a step that reads Python's state, or is plain Python, computes the same once it is traced.

Read `state` first, it answers for a plain step: `code` reads bytecode, `impure` finds what a trace would not repeat,
`bindings` which lasting objects functions pass to each other, `survey` walks through all that the step may read,
`arguments` finds what of it a call brings, `kinds` tells what needs a look, and `guard` compares that fast before each
call. `eager_difference` finds ops that do something else once they are traced, `tensor_reads` code that reads what is
not known then, `branches` what a branch by a tensor changes, `gradients` those that are None on some way through
branches, `lasting` what libraries keep of a trace, `number_use` what a number must not be a tensor for, `settings` what
the libraries are set to, and `streams` what random numbers come from that the whole program shares.
"""
