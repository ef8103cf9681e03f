"""What a process may still take is found in the files of its control groups, of both versions."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest

from placer.devices.host.memory import available_bytes
from tests.placer.devices.host.test_cores import file_system

FREE, GIB = 10 * 2**30, 2**30
GROUP = "sys/fs/cgroup/memory/docker/abc/memory"


@pytest.fixture(autouse=True)
def free(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=FREE))


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, FREE),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, FREE),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": f"{4 * GIB}\n",
          "sys/fs/cgroup/a/b/memory.current": f"{3 * GIB}\n"}, GIB),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{4 * GIB}\n",  # cached files can go
          "sys/fs/cgroup/a/memory.current": f"{3 * GIB}\n",
          "sys/fs/cgroup/a/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\n"}, 3 * GIB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{GIB}\n",
          "sys/fs/cgroup/memory.current": f"{GIB + 4096}\n"}, 0),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": f"{GIB}\n"}, FREE),  # nobody knows what it holds
        ({"proc/self/cgroup": "4:memory:/docker/abc\n", f"{GROUP}.limit_in_bytes": f"{2 * GIB}\n",
          f"{GROUP}.usage_in_bytes": f"{GIB}\n"}, GIB),
        ({"proc/self/cgroup": "4:memory:/docker/abc\n", f"{GROUP}.limit_in_bytes": "9223372036854771712\n",
          f"{GROUP}.usage_in_bytes": f"{GIB}\n"}, FREE),
        ({"proc/self/cgroup": "4:cpu:/docker/abc\n", f"{GROUP}.limit_in_bytes": f"{2 * GIB}\n",
          f"{GROUP}.usage_in_bytes": f"{GIB}\n"}, FREE),
    ],
)  # fmt: skip
def test_it_is_the_least_of_what_is_free_and_what_all_groups_allow(tmp_path, files, found):
    assert available_bytes(file_system(tmp_path, files)) == found
