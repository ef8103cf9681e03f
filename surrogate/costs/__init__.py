"""What each op costs on each device, as a matrix."""
