"""What to measure next.

`replanner` is the plan by all that was measured and by the `load`; `planner_server` runs it in a process of its own,
`planner_client` talks to that, and `proposal` is what goes between them.
"""
