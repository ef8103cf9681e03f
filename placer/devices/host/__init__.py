"""What this process learns about the machine that it runs on: its name, the cores and the memory that it may use (by
its `control_groups`, too), and whether it slept (`suspends`); how it starts processes of its own Python
(`child_python`), and how these end with it (`parent`).
"""
