"""How well step times are predicted before they are run: measured mappings against the simulator, and its page."""
