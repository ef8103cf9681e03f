"""Where searches start: `baselines` (single devices, random), `expert` (layers, branches), `starts` (all rules)."""
