"""Runs mappings for real: `runner` times them side by side (`race`, `in_turn`, `timing`; `settings` say how long),
`step_check` compares what they compute with the untouched step (`untouched`), then `store` keeps the results in
SQLite.
"""
