"""Rules: along which factors an op can be divided, and what that means for each of its tensors.

Read `way` first, it is what a rule says of one op. `elementwise`, `linear`, `convolutions`, `images`, `batch_norm`,
`reductions`, `moving` and `resources` are the rules, each for op types that divide alike; `copies` has each part do the
whole op, and `local` has it take its own examples for all. `table` finds a rule by op type.
"""
