"""What changed: `change_detection` notices from step times, `slowdown_monitor` probes, `diagnosis` decides;
`step_level` knows by how much since it was last acted on, `worth` whether acting may pay, and `probe_budget` what
looking may cost.
"""
