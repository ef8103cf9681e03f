"""The jobs `search` and `compare`: a step is traced, profiled and placed, and its mappings are measured."""
