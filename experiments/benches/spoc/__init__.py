"""Does SPOC explain how long networks take? Hundreds of them, measured, and families predicted that no fit has seen.

`networks` lists them, `build` makes them, `measure` times them, `published` has others' figures, `analysis` fits; `run`
is the whole; `page` and `plot` show it.
"""
