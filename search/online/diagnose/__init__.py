"""Finds out what changed: `change_detection` notices changes of step times, `slowdown_monitor` probes devices, and
`diagnosis` says what slowed. `step_level` knows how much steps changed since a change was last acted on, `look_worth`
whether acting may pay, and `probe_budget` what probing may cost.
"""
