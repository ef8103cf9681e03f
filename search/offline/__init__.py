"""Search on files: `plan` searches by the simulator alone; `prepare` compiles ahead what the first plan needs."""
