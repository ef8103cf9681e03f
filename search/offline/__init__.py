"""Search on files: `plan` is judged by the simulator alone."""
