"""Does SPOC explain how long networks take? Hundreds are measured, and families predicted that no fit has seen.

`networks` lists them, `build` makes them, `device_kinds` says on what `measure` times them, `asking` keeps what was
measured, `published` has others' figures, `analysis` fits, `transfer` compares kinds of device, and `advice` tries what
`placer spoc` says. `run` runs all of it; `page`, `advice_page` and `plot` show the results.
"""
