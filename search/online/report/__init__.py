"""Reports on a live step: `text` for terminals and notebooks, `step_record` for a report page."""
