"""How good plans are after 1, 10 and 60 seconds: `graphs` makes the graphs, `run` plans, `page` shows the table."""
