"""What the commands do, up to the facts they found.

`search` holds the jobs that measure mappings, and `search_folder` what they write; `plan` plans and simulates from
files alone, `plan_model` plans a model that was never profiled. `profile` fills the operator dataset, which
`operator_store` reads for predicted costs. `scale` fits formulas, and `spoc` measures graphs, of which `spoc_reading`
makes a sentence. `interrupt` says what Ctrl-C and SIGTERM do.
"""
