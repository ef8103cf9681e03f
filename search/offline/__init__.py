"""Search on files: `plan` is judged by the simulator alone; `prepare` compiles what it needs ahead of the first one."""
