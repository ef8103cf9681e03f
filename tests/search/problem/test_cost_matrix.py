"""The matrix of costs has what each op says of each device."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from placer.graph.op_graph import OpGraph
from surrogate.costs.cost_matrix import cost_matrix


@given(st.data())
def test_each_cost_is_that_of_the_op_on_the_device(enumerable, data):
    """Ops with costs by kind and by name, some of which may run on some devices only."""
    problem = data.draw(enumerable)
    if problem is None:
        return
    devices = problem.topology.devices
    some = st.sampled_from((None, None, *((d.kind,) for d in devices), *((d.name,) for d in devices)))
    ops = tuple(replace(op, devices=data.draw(some)) for op in problem.graph.ops)
    costs = np.array([[op.cost_on(d) for d in devices] for op in ops])
    if not np.isinf(costs).all(axis=1).any():
        assert np.array_equal(cost_matrix(OpGraph("g", ops, ()), problem.topology), costs)
