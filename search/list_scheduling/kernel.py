"""Compiled list scheduling: ops are taken in a given order, and each goes to the device where it finishes first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.problem.problem import Limits
from surrogate.jit import inner, jit, kernel
from surrogate.simulate.kernels.arrays import Tables
from surrogate.simulate.kernels.transfer import transfer_s

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Words = NDArray[np.int64]
NOWHERE = -1


class Plan(NamedTuple):
    """The plan so far. v: op, d: device, t: tensor, u: unit. Spans of one device that touch are one span."""

    device: Ints  # [v]
    start_s: Floats  # [v]
    finish_s: Floats  # [v]
    begin_s: Floats  # [d, span] when the busy spans of a device begin, in order
    end_s: Floats  # [d, span] when they end
    spans: Words  # [d] the number of spans
    there_s: Floats  # [t, d] when a tensor is on a device; below 0 if that is not planned
    unit_device: Ints  # [u] NOWHERE before the unit's first op is planned
    unit_s: Floats  # [u, d] seconds of all ops of the unit
    promised_s: Floats  # [d] seconds of the ops that are not planned yet but whose unit is bound to the device
    free_bytes: Floats  # [d]


@jit
def list_schedule(
    tables: Tables,
    limits: Limits,
    line: Ints,
    ahead_s: Floats,
    foresight: float,
    device: Ints,
    start_s: Floats,
    finish_s: Floats,
) -> bool:
    """Fill device, start_s and finish_s, [ops], by taking the ops in the order `line`, producers first.

    ahead_s: [ops, devices] seconds that are added to the finish when a device is chosen. If all are infinite, or in a
    tie, the finish decides. foresight: the share of the work already bound to a device that is added as well when the
    device of a unit's first op is chosen, which binds the unit's other ops. Insertion-based, after Topcuoglu, Hariri,
    Wu 2002, with the work of sending and receiving, which the paper does not have: when a device is chosen, each send
    is planned as if it were the only one. Returns whether every unit found room in memory.
    """
    ops, devices = tables.cost_s.shape
    room = ops + (len(tables.dst) if tables.ends_work else 0)
    plan = Plan(
        device,
        start_s,
        finish_s,
        np.empty((devices, room)),
        np.empty((devices, room)),
        np.zeros(devices, np.int64),
        np.full((tables.tensors, devices), -1.0),
        np.full(len(limits.unit_bytes), NOWHERE, np.int32),
        np.zeros((len(limits.unit_bytes), devices)),
        np.zeros(devices),
        limits.capacity_bytes.copy(),
    )
    return _schedule(tables, limits, plan, line, ahead_s, foresight)


@kernel
def _schedule(tables: Tables, limits: Limits, plan: Plan, line: Ints, ahead_s: Floats, foresight: float) -> bool:
    complete = True
    for op in line:
        for device in range(tables.cost_s.shape[1]):
            plan.unit_s[limits.unit_of[op], device] += tables.cost_s[op, device]
    for op in line:
        unit = limits.unit_of[op]
        only = plan.unit_device[unit]
        if only == NOWHERE:
            only = _last_resort(limits, plan, unit)
            complete = complete and only == NOWHERE
        device, begin_s, receive_s, finish_s = _chosen(tables, limits, plan, op, only, ahead_s, foresight)
        if plan.unit_device[unit] == NOWHERE:
            plan.unit_device[unit] = device
            plan.free_bytes[device] -= limits.unit_bytes[unit]
            plan.promised_s[device] += plan.unit_s[unit, device]
        plan.promised_s[device] -= tables.cost_s[op, device]
        _settle(tables, plan, op, device, begin_s, receive_s, finish_s)
    return complete


@inner
def _has_room(limits: Limits, plan: Plan, unit: int, device: int) -> bool:
    return limits.feasible[unit, device] and plan.free_bytes[device] >= limits.unit_bytes[unit]  # type: ignore[no-any-return]


@inner
def _last_resort(limits: Limits, plan: Plan, unit: int) -> int:
    """Return the roomiest device that can run the unit if no device has room for it; else NOWHERE."""
    roomiest = NOWHERE
    for device in range(len(plan.free_bytes)):
        if _has_room(limits, plan, unit, device):
            return NOWHERE
        if limits.feasible[unit, device] and (
            roomiest == NOWHERE or plan.free_bytes[device] > plan.free_bytes[roomiest]
        ):
            roomiest = device
    return roomiest


@inner
def _chosen(
    tables: Tables, limits: Limits, plan: Plan, op: int, only: int, ahead_s: Floats, foresight: float
) -> tuple[int, float, float, float]:
    """Choose the device with the least finish plus ahead_s: `only`, or if that is NOWHERE, any device with room.

    Returns (device, when it begins to receive, seconds of receiving, when the op finishes).
    """
    best, best_value_s, best_begin_s, best_receive_s, best_finish_s = NOWHERE, np.inf, 0.0, 0.0, np.inf
    unit = limits.unit_of[op]
    for device in range(tables.cost_s.shape[1]):
        if device != only and (only != NOWHERE or not _has_room(limits, plan, unit, device)):
            continue
        ready_s, receive_s = _inputs_come(tables, plan, op, device)
        busy_s = receive_s + tables.cost_s[op, device]
        begin_s = _gap(plan, device, ready_s, busy_s)  # EST, eq. 6
        finish_s = begin_s + busy_s  # EFT, eq. 7
        value_s = finish_s + ahead_s[op, device]
        if foresight > 0 and plan.unit_device[unit] == NOWHERE:
            rest_s = plan.unit_s[unit, device] - tables.cost_s[op, device]
            value_s += foresight * (plan.promised_s[device] + rest_s)
        ties = value_s == best_value_s and finish_s < best_finish_s
        if best == NOWHERE or value_s < best_value_s or ties:
            best, best_value_s = device, value_s
            best_begin_s, best_receive_s, best_finish_s = begin_s, receive_s, finish_s
    return best, best_begin_s, best_receive_s, best_finish_s


@inner
def _inputs_come(tables: Tables, plan: Plan, op: int, device: int) -> tuple[float, float]:
    """Return (when the last input would be on the device, seconds of receiving inputs from other devices)."""
    ready_s, receive_s = 0.0, 0.0
    for i in range(tables.first_input[op], tables.first_input[op + 1]):
        need = tables.by_dst[i]
        known_s = plan.there_s[tables.tensor[need], device]
        if known_s >= 0:
            ready_s = max(ready_s, known_s)
            continue
        maker = tables.src[need]
        home = plan.device[maker]
        send_s, link_s, one_receive_s = transfer_s(tables.link, home, device, tables.tensor_bytes[need])
        sent_s = plan.finish_s[maker]
        if send_s != 0:
            sent_s = _gap(plan, home, sent_s, send_s) + send_s
        ready_s = max(ready_s, sent_s + link_s)
        receive_s += one_receive_s
    return ready_s, receive_s


@inner
def _gap(plan: Plan, device: int, after_s: float, length_s: float) -> float:
    """The earliest second from after_s on at which the device is free for length_s; just free, if that is 0."""
    begin_s, end_s, spans = plan.begin_s[device], plan.end_s[device], plan.spans[device]
    if after_s == np.inf or spans == 0 or after_s >= end_s[spans - 1]:
        return after_s
    low, high = 0, spans
    while low < high:
        middle = (low + high) // 2
        if begin_s[middle] <= after_s:
            low = middle + 1
        else:
            high = middle
    at_s = max(after_s, end_s[low - 1]) if low > 0 else after_s
    while low < spans and begin_s[low] < at_s + length_s:
        at_s = max(at_s, end_s[low])
        low += 1
    return at_s


@inner
def _occupy(plan: Plan, device: int, from_s: float, to_s: float) -> None:
    """Mark a device as busy from from_s to to_s, a time in which it is free."""
    if not from_s < to_s < np.inf:
        return
    begin_s, end_s, spans = plan.begin_s[device], plan.end_s[device], plan.spans[device]
    i = spans
    while i > 0 and begin_s[i - 1] > from_s:
        i -= 1
    joins_left = i > 0 and end_s[i - 1] == from_s
    joins_right = i < spans and begin_s[i] == to_s
    if joins_left and joins_right:
        end_s[i - 1] = end_s[i]
        for j in range(i, spans - 1):
            begin_s[j], end_s[j] = begin_s[j + 1], end_s[j + 1]
        plan.spans[device] -= 1
    elif joins_left:
        end_s[i - 1] = to_s
    elif joins_right:
        begin_s[i] = from_s
    else:
        for j in range(spans, i, -1):
            begin_s[j], end_s[j] = begin_s[j - 1], end_s[j - 1]
        begin_s[i], end_s[i] = from_s, to_s
        plan.spans[device] += 1


@inner
def _settle(
    tables: Tables, plan: Plan, op: int, device: int, begin_s: float, receive_s: float, finish_s: float
) -> None:
    """Add the op to the plan as chosen, together with the sending of its inputs."""
    plan.device[op], plan.finish_s[op] = device, finish_s
    plan.start_s[op] = begin_s + receive_s
    for i in range(tables.first_input[op], tables.first_input[op + 1]):
        need = tables.by_dst[i]
        if plan.there_s[tables.tensor[need], device] >= 0:
            continue
        maker = tables.src[need]
        home, sent_s = plan.device[maker], plan.finish_s[maker]
        send_s, link_s, one_receive_s = transfer_s(tables.link, home, device, tables.tensor_bytes[need])
        if send_s != 0:
            begin_send_s = _gap(plan, home, sent_s, send_s)
            sent_s = begin_send_s + send_s
            _occupy(plan, home, begin_send_s, sent_s)
        # One that has to be received is there when the op starts, any other when it arrives.
        plan.there_s[tables.tensor[need], device] = plan.start_s[op] if one_receive_s != 0 else sent_s + link_s
    _occupy(plan, device, begin_s, finish_s)
    for need in range(tables.start[op], tables.start[op + 1]):
        plan.there_s[tables.tensor[need], device] = finish_s


@jit
def rank_all(tables: Tables, order: Ints, mean_s: Floats, link_s: Floats, rank_s: Floats) -> None:
    """Fill rank_s, [ops], with upward ranks: Topcuoglu, Hariri, Wu 2002, eq. 8, as in surrogate/simulate/priority.py.

    order: op indices, producers first. mean_s: [ops] seconds of each op. link_s: [needs] seconds of each crossing.
    """
    for i in range(len(order) - 1, -1, -1):
        op = order[i]
        heaviest_s = 0.0
        for need in range(tables.start[op], tables.start[op + 1]):
            heaviest_s = max(heaviest_s, link_s[need] + rank_s[tables.dst[need]])
        rank_s[op] = mean_s[op] + heaviest_s
