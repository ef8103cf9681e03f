"""What to measure next.

Read `replanner` first: it plans by all that was measured, under the present `load`. `planner_server` runs it in a
process of its own, `planner_client` talks to that process, and `proposal` is what they exchange.
"""
