"""Rules: along which factors an op can be divided, and what that means for each of its tensors.

Read `way` first: a Way is what a rule returns for an op. `elementwise`, `linear`, `convolutions`, `images`,
`batch_norm`, `reductions`, `moving` and `resources` are the rules, each for op types that divide alike. In `copies`
each part does the whole op, and in `local` each part uses only its own examples. `table` finds a rule by op type.
"""
