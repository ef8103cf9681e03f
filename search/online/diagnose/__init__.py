"""What changed: `change_detection` notices from step times, `slowdown_monitor` probes, `diagnosis` decides."""
