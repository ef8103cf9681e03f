"""Where searches start: `baselines` (single devices, random), `expert` (layers, branches), `parts` (part i of divided
ops on device i), `starts` (all rules).
"""
