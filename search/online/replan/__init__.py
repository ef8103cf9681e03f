"""Plans what to measure next.

`replanner` plans by all that was measured and by the `load`; `planner_server` runs it in a process of its own,
`planner_client` talks to that process, and `proposal` has the values that go between them.
"""
