"""Two runs at once do not disturb each other, whether one user starts both or each has one of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from placer.graph.mapping_files import read_mapping_file
from placer.measure.store import Store
from tests.environments.surroundings import AS_OTHER, NO_HOME, other_user, started

SEARCH = ("search", "mnist_softmax", "--workers", "2", "--measurements", "3", "--split", "off", "--quiet", "--json")

pytestmark = [pytest.mark.nightly, pytest.mark.workers]


def test_two_searches_with_one_store_and_one_folder_hand_back_what_each_measured(tmp_path: Path) -> None:
    out, store = tmp_path / "out", tmp_path / "runs.sqlite"
    runs = [started(*SEARCH, "--seed", seed, "--out", out, "--store", store) for seed in (0, 1)]
    for done in [run() for run in runs]:
        assert done.returncode == 0, done.stderr
        ran = [row for row in json.loads(done.stdout)["measured"] if row["failed"] is None]
        assert len(ran) >= 2
        assert done.stderr == f"wrote {out / 'mapping.json'}\n"
    assert read_mapping_file(out / "mapping.json").assignment
    with Store(store) as kept:
        assert len(kept) >= 2
        assert kept.connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


@other_user
def test_two_users_search_at_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    runs = [started(*SEARCH, "--out", tmp_path / "mine"), started(*SEARCH, wrap=AS_OTHER, cwd="/proc", **NO_HOME)]
    for done in [run() for run in runs]:
        assert done.returncode == 0, done.stderr
        assert [row["failed"] for row in json.loads(done.stdout)["measured"] if row["searcher"] == "single"] == [
            None
        ] * 2
