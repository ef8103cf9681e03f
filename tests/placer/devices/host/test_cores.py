"""A control group's quota is found in files of both versions, and workers are given no more cores than it pays for."""

from __future__ import annotations

import os

import pytest

from placer.devices.host import cores
from placer.devices.host.cores import by_place, core_count, quota, quota_line, usable_cores


def file_system(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V1 = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
          "sys/fs/cgroup/a/b/cpu.max": "200000 100000\n"}, 0.5),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/other/cpu.max": "50000 100000\n"}, None),
        ({"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/cpu.max": "50000 100000\n", "sys/cpu.max": "1 100\n"}, 0.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000\n"}, None),
        ({"proc/self/cgroup": "no such line\n"}, None),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "-1\n",
          "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000\n"}, None),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "25000\n",
          "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000\n"}, 0.25),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",  # as a container sees its own group
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
    ],
)  # fmt: skip
def test_the_quota_is_the_least_of_all_groups_around_this_process(tmp_path, files, found):
    assert quota(file_system(tmp_path, files)) == found


@pytest.mark.parametrize(("limit", "count"), [(None, 4), (8.0, 4), (4.0, 4), (2.0, 2), (1.5, 2), (1.0, 1), (0.1, 1)])
def test_a_part_of_a_core_counts_as_one(limit, count):
    assert core_count(4, limit) == count
    assert (quota_line(4, limit) is None) == (limit is None or limit >= 4)


def test_workers_get_no_more_cores_than_the_quota_pays_for(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7})
    monkeypatch.setattr(cores, "known_quota", lambda: 1.5)
    assert usable_cores() == [3, 5]


def test_a_quota_is_said_once_and_in_one_line(monkeypatch, caplog):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7})
    monkeypatch.setattr(cores, "known_quota", lambda: 0.5)
    cores.say_quota.cache_clear()
    cores.say_quota()
    cores.say_quota()
    cores.say_quota.cache_clear()
    (line,) = caplog.messages
    assert line.startswith("placer: this process may run on 3 cores, but its control group may keep 0.5 of them busy")
    assert "\n" not in line


def test_threads_of_one_physical_core_lie_side_by_side(tmp_path):
    """As on most machines: 0 and 4 are one core, 1 and 5 the next; of 6 nothing is known."""
    for core, (socket, physical) in {0: (0, 0), 4: (0, 0), 1: (0, 1), 5: (0, 1), 2: (1, 0), 3: (1, 0)}.items():
        folder = f"sys/devices/system/cpu/cpu{core}/topology"
        file_system(tmp_path, {f"{folder}/physical_package_id": f"{socket}\n", f"{folder}/core_id": f"{physical}\n"})
    assert by_place([0, 1, 2, 3, 4, 5], tmp_path) == [0, 4, 1, 5, 2, 3]
    assert by_place([7, 6], tmp_path) == [6, 7]
