"""The time to send a tensor over a link: the one formula that all compiled code uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surrogate.jit import inner
from surrogate.simulate.kernels.arrays import BANDWIDTH, LATENCY, RECEIVE, RECEIVE_PER_BYTE, SEND, SEND_PER_BYTE


@inner
def transfer_s(link: NDArray[np.float64], src: int, dst: int, tensor_bytes: float) -> tuple[float, float, float]:
    """Seconds that the sender works, that the tensor is on the way, and that the receiver works.

    link: [6, devices, devices], see `links_of`. Compiled code computes only those of the three that its caller uses.
    """
    send_s = link[SEND, src, dst] + tensor_bytes * link[SEND_PER_BYTE, src, dst]
    way_s = link[LATENCY, src, dst] + tensor_bytes / link[BANDWIDTH, src, dst]
    receive_s = link[RECEIVE, src, dst] + tensor_bytes * link[RECEIVE_PER_BYTE, src, dst]
    return send_s, way_s, receive_s
