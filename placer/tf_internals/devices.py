"""The devices and workers that this process has joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.eager import context as eager_context


def incarnations() -> dict[str, int]:
    """Device name -> incarnation, a number that is new each time the device starts; for all joined devices."""
    return _of_devices(pywrap_tf_session.TF_DeviceListIncarnation)


def joined_tasks() -> dict[int, str]:
    """Task number -> address of the workers this process last joined; empty before it joins any."""
    server = eager_context.context().get_server_def()
    jobs = () if server is None else server.cluster.job
    return {task: address for job in jobs if job.name == "worker" for task, address in job.tasks.items()}


def serve_cluster(cluster: tf.train.ClusterSpec) -> bool:
    """Connect this process to another cluster with its current server; return whether it has a server.

    `tf.config.experimental_connect_to_cluster` starts another server each time, and TensorFlow never ends one.
    """
    context = eager_context.context()
    current = context.get_server_def()
    if current is None:
        return False
    wanted = type(current)()
    wanted.CopyFrom(current)
    mine = [job for job in current.cluster.job if job.name == current.job_name]
    wanted.cluster.CopyFrom(cluster.as_cluster_def())
    for job in [job for job in wanted.cluster.job if job.name == current.job_name]:
        wanted.cluster.job.remove(job)
    wanted.cluster.job.extend(mine)
    context.update_server_def(wanted)
    return True


@contextmanager
def kept_by_workers(seconds: int) -> Iterator[None]:
    """Workers that are joined within the block keep what this process has there for `seconds` (wall clock) without a
    call, instead of ten minutes. When a worker ends, what it keeps is lost in any case.
    """
    context = eager_context.context()
    context.ensure_initialized()  # done before, because this would tell workers ten minutes
    context.set_server_def = partial(context.set_server_def, keep_alive_secs=seconds)
    context.update_server_def = partial(context.update_server_def, keep_alive_secs=seconds)
    try:
        yield
    finally:
        del context.set_server_def, context.update_server_def


def device_memory_limits() -> dict[str, int]:
    """Full device name -> bytes that TensorFlow may use of it.

    For a logical GPU its limit; for a whole GPU what was free when devices were set up; for a CPU always 256 MiB.
    """
    return _of_devices(pywrap_tf_session.TF_DeviceListMemoryBytes)


def _of_devices(look: Callable[[Any, int], int]) -> dict[str, int]:
    context = eager_context.context()
    context.ensure_initialized()
    devices = pywrap_tfe.TFE_ContextListDevices(context._handle)
    count = pywrap_tf_session.TF_DeviceListCount(devices)
    return {pywrap_tf_session.TF_DeviceListName(devices, i): look(devices, i) for i in range(count)}


def devices_are_set_up() -> bool:
    """Whether TensorFlow has initialised this process's devices, so that they can no longer be divided."""
    return eager_context.context()._context_handle is not None


def device_config() -> Any:
    """A ConfigProto for a session that sees this process's devices, including logical ones."""
    config, mine = tf.compat.v1.ConfigProto(), eager_context.context().config
    config.device_count.update(mine.device_count)
    config.gpu_options.CopyFrom(mine.gpu_options)
    return config
