"""Facts about this machine: its name (`machine`), the cores and memory that this process may use (`cores`, `memory` and
`control_groups`, which may limit both), and whether it was suspended (`suspends`). `child_python` starts processes of
this process's own Python, and `parent` ends them with the process that started them.
"""
