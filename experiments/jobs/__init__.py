"""The work of the commands, up to the facts that they report.

`search` holds the jobs that measure mappings, and `search_folder` names the files that they write. `plan` plans and
simulates from files alone, and `plan_model` plans a model that was never profiled. `mappings` describes and compares
mapping files. `profile` fills the operator dataset, which `kept_profiles` writes and `operator_store` reads for
predicted costs. `scale` fits formulas, and `spoc` measures graphs, which `spoc_reading` describes in a sentence.
`interrupt` handles Ctrl-C and SIGTERM.
"""
