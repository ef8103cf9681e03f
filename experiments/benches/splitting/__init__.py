"""What dividing ops brings: the best single device, whole and divided ops side by side, and whether they train alike.

`measure` measures one network in a process of its own, `sameness` compares trainings, `run` asks for all networks and
sums up, `page` shows the table, `plot` draws it.
"""
