"""TensorBoard's event files, written by modules of the package `tensorboard` that load no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any

PREFIX = "events.out.tfevents."  # TensorBoard finds files by this; seconds since 1970 follow
VERSION = "brain.Event:2"


def header(wall_s: float) -> Any:
    """The event that a file begins with. wall_s: seconds since 1970."""
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(wall_time=wall_s, file_version=VERSION)


def scalars(wall_s: float, step: int, values: Mapping[str, float]) -> Any:
    """The event that records numbers by name. wall_s: seconds since 1970."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    told = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
    return Event(wall_time=wall_s, step=step, summary=told)


def records(events: Iterable[Any]) -> bytes:
    """The bytes of the events in a file, one event after the other."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = BytesIO()
    writer = RecordWriter(content)
    for event in events:
        writer.write(event.SerializeToString())
    return content.getvalue()
