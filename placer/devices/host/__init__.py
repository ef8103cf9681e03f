"""What this process learns about the machine that it runs on: its name, the cores it may use, and whether it slept."""
