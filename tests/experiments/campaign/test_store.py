"""The store: one writer, older files renewed, newer ones refused, and a full disk loses nothing."""

import os
import sqlite3
from contextlib import closing

import pytest

from experiments.campaign.run import wanted
from experiments.campaign.schema import MIGRATIONS
from experiments.campaign.spec import read_spec
from experiments.campaign.store import PROFILE, CampaignStore, StoredTrial
from placer.errors import BadInputError, PlacerError
from placer.result import Failed, Measured

RESULTS = [Measured(0.25, 0.01, 12, 1.5, True), Failed("memory", "no room"), Measured(0.1)]


@pytest.fixture
def spec(folder):
    return read_spec(folder / "campaign.toml")


def filled(store, spec, count=3):
    """The store with some measurements of the first cell."""
    store.want(wanted(spec))
    for n in range(count):
        store.keep(spec.cells[0].key, StoredTrial(n, (n, 0), RESULTS[n % 3], 0.5), {"told": n})
    return store


def test_what_was_kept_is_held(spec):
    with CampaignStore(spec.store) as store:
        filled(store, spec)
    with CampaignStore(spec.store) as store:
        held = store.held()
    assert [cell.key for cell in held] == [cell.key for cell in spec.cells]
    assert [trial.result for trial in held[0].trials] == RESULTS
    assert (held[0].state, held[1].state, held[0].wanted) == ({"told": 2}, None, 5)


def test_a_state_comes_back_as_it_was(spec):
    """Among it what JSON writes in words of its own, and numbers that must keep their last bit."""
    state = {"rng": [3, [2**32 - 1, 0], None], "best": [[[0, 1], float("inf")], 0.1 + 0.2], "named": {"cpu:0": 1e-300}}
    with CampaignStore(spec.store) as store:
        store.want(wanted(spec))
        store.keep(spec.cells[0].key, StoredTrial(0, (0,), RESULTS[0], 0.5), state)
        assert store.held()[0].state == state


def test_what_a_searcher_noted_is_held_with_its_cell(spec):
    def keep(cell, session):
        store.keep(spec.cells[cell].key, StoredTrial(0, (0,), RESULTS[0], 0.5), {"session": session})

    with CampaignStore(spec.store) as store:
        store.want(wanted(spec))
        keep(0, {"notes": ["stage 2."]})
        keep(1, {})  # as it was stored before notes were
        assert [held.notes for held in store.held()] == [("stage 2.",), (), *[()] * (len(spec.cells) - 2)]
        keep(2, {"notes": 3})
        with pytest.raises(BadInputError, match="no campaign wrote"):
            store.held()


def test_two_campaigns_on_one_store(spec):
    with CampaignStore(spec.store) as store:
        with pytest.raises(PlacerError, match="another campaign writes to") as refused:
            CampaignStore(spec.store)
        assert "\n" not in str(refused.value)
        link = spec.store.with_name("link.db")
        link.symlink_to(spec.store)
        with pytest.raises(PlacerError, match="another campaign writes to"):
            CampaignStore(link)
        filled(store, spec)  # the refused one has taken nothing away
    CampaignStore(spec.store).close()


def test_the_store_is_read_while_it_is_written(spec):
    with CampaignStore(spec.store) as store:
        filled(store, spec, 1)
        with CampaignStore(spec.store, reads=True) as reader:
            assert len(reader.held()[0].trials) == 1
            store.keep(spec.cells[0].key, StoredTrial(1, (1, 1), RESULTS[2], 0.5), {})
            assert len(reader.held()[0].trials) == 2
            with pytest.raises(PlacerError, match="readonly"):
                reader.keep_end(spec.cells[0].key, "no")


def test_a_newer_version_is_refused_and_left_alone(spec):
    newer = (*MIGRATIONS, "CREATE TABLE more (a INTEGER);")
    CampaignStore(spec.store, migrations=newer).close()
    for reads in (False, True):
        with pytest.raises(PlacerError, match=f"schema {len(newer)}, this Placer knows {len(MIGRATIONS)}"):
            CampaignStore(spec.store, reads=reads)


def test_an_older_version_is_renewed_and_keeps_what_it_has(spec):
    with CampaignStore(spec.store) as store:
        filled(store, spec)
        before = store.held()
    newer = (*MIGRATIONS, "ALTER TABLE cells ADD COLUMN note TEXT; UPDATE cells SET note = 'kept';")
    with pytest.raises(PlacerError, match="run renews it"):
        CampaignStore(spec.store, reads=True, migrations=newer)
    with CampaignStore(spec.store, migrations=newer) as store:
        assert store.held() == before
        assert store.connection.execute("SELECT DISTINCT note FROM cells").fetchall() == [("kept",)]


def test_a_migration_that_fails_leaves_the_file_as_it_was(spec):
    with CampaignStore(spec.store) as store:
        filled(store, spec)
    with pytest.raises(PlacerError):
        CampaignStore(spec.store, migrations=(*MIGRATIONS, "CREATE TABLE more (a INTEGER); UPDATE nothing SET a = 1;"))
    with CampaignStore(spec.store) as store:
        assert len(store.held()[0].trials) == 3


def test_a_full_disk_is_said_in_one_line_and_loses_nothing(spec):
    with CampaignStore(spec.store) as store:
        filled(store, spec)
        pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
        store.connection.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(PlacerError, match="is full") as refused:
            store.keep(spec.cells[0].key, StoredTrial(3, (1, 1), RESULTS[0], 0.5), {"much": "x" * 100_000})
        assert "\n" not in str(refused.value)
        assert (len(store.held()[0].trials), store.held()[0].state) == (3, {"told": 2})
        store.connection.execute(f"PRAGMA max_page_count={pages + 1000}")
        store.keep(spec.cells[0].key, StoredTrial(3, (1, 1), RESULTS[0], 0.5), {"much": "x" * 100_000})


def test_a_measurement_is_never_stored_twice(spec):
    with CampaignStore(spec.store) as store:
        filled(store, spec)
        with pytest.raises(PlacerError, match="UNIQUE"):
            store.keep(spec.cells[0].key, StoredTrial(2, (1, 1), RESULTS[0], 0.5), {"told": "wrong"})
        assert store.held()[0].state == {"told": 2}


def test_what_is_no_store_is_refused(folder):
    for path in (folder / "towers.json", folder):
        for reads in (False, True):
            with pytest.raises(PlacerError) as refused:
                CampaignStore(path, reads=reads)
            assert "\n" not in str(refused.value)


def test_a_store_that_is_not_there_is_not_made_by_reading(tmp_path):
    with pytest.raises(PlacerError, match="begin the campaign"):
        CampaignStore(tmp_path / "none.sqlite", reads=True)
    assert not (tmp_path / "none.sqlite").exists()


def test_a_transaction_that_dies_leaves_no_half(spec):
    with CampaignStore(spec.store) as store:
        filled(store, spec)
        store.connection.execute("BEGIN IMMEDIATE")
        store.connection.execute("DELETE FROM trials")
        store.connection.close()  # as a killed process does
        store._unlock()
    with CampaignStore(spec.store) as store:
        assert len(store.held()[0].trials) == 3
    with closing(sqlite3.connect(spec.store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def refused_and_unchanged(path):
    before = path.read_bytes()
    for reads in (False, True):
        with pytest.raises(PlacerError, match="no store of a campaign; name another"):
            CampaignStore(path, reads=reads)
    assert path.read_bytes() == before


def test_an_sqlite_file_of_another_kind_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "results.sqlite"
    for version in (0, 1, 2):
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS results (a INTEGER)")
            connection.execute(f"PRAGMA user_version={version}")
        connection.close()
        refused_and_unchanged(path)


def test_another_programs_tables_of_the_same_names_are_none_of_a_campaign(tmp_path):
    path = tmp_path / "court.sqlite"
    connection = sqlite3.connect(path)
    for table in ("cases", "cells", "trials"):
        connection.execute(f"CREATE TABLE {table} (id INTEGER)")
    connection.close()
    refused_and_unchanged(path)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for reads in (False, True):
        with pytest.raises(PlacerError, match="is no file"):
            CampaignStore(tmp_path / "pipe", reads=reads)
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]


def test_a_store_that_is_just_being_made_and_one_that_is_damaged_are_named_in_one_line(tmp_path):
    path = tmp_path / "new.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    with pytest.raises(PlacerError, match="just being made; try again"):
        CampaignStore(path, reads=True)
    CampaignStore(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE failures")
    connection.close()
    with CampaignStore(path, reads=True) as store, pytest.raises(PlacerError, match="cannot be read: no such table"):
        store.failures()


@pytest.mark.parametrize(
    "damage",
    [
        "trials SET result = '{}'",
        "trials SET result = 'no JSON'",
        """trials SET result = '{"step_s": -1.0}'""",
        """trials SET result = '{"step_s": NaN}'""",
        """trials SET result = '{"failed": 7, "detail": ""}'""",
        "trials SET placement = '[0, -1]'",
        "trials SET placement = '7'",
        "trials SET seconds = 'long'",
        "cells SET minutes = 'many'",
        "cells SET seed = 'a'",
        "cells SET wanted = -1",
        "cells SET final = '[]'",
        """cells SET final = '{"best_s": "fast"}'""",
        "cells SET state = 'no JSON'",
        "cells SET state = X'ff'",
        "cells SET state = substr(state, 1, length(state) - 1)",
        "cases SET kind = 'guessed'",
    ],
)
def test_a_row_that_no_campaign_wrote_is_one_line(spec, damage):
    with CampaignStore(spec.store) as store:
        filled(store, spec)
        store.connection.execute(f"UPDATE {damage}")
        with pytest.raises(BadInputError, match="that no campaign wrote") as refused:
            store.held()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("damage", "read"),
    [
        ("cases SET terms = '[1]'", lambda store, case: store.terms()),
        ("cases SET opened = '7'", lambda store, case: store.opened(case)),
        ("""cases SET opened = '{"singles": [["cpu:0", "fast"]]}'""", lambda store, case: store.opened(case)),
        ("""cases SET opened = '{"warm_start": {"carried": 1}}'""", lambda store, case: store.opened(case)),
        ("contents SET content = 'text'", lambda store, case: store.content(case, PROFILE)),
        ("failures SET reason = 7.5, at = 'now'", lambda store, case: store.failures()),
        ("trials SET at = 1e300", lambda store, case: store.times()),
    ],
)
def test_the_same_of_what_else_is_stored(spec, damage, read):
    with CampaignStore(spec.store) as store:
        filled(store, spec)
        case = spec.cells[0].case.key
        store.keep_opened(case, {"singles": [["cpu:0", 0.5], ["cpu:1", None]]}, {PROFILE: b"profile"})
        store.keep_failure(case, None, None, RESULTS[1])
        read(store, case)
        store.connection.execute(f"UPDATE {damage}")
        with pytest.raises(BadInputError, match="that no campaign wrote"):
            read(store, case)


def test_a_cell_whose_case_was_changed_is_put_right(spec):
    with CampaignStore(spec.store) as store:
        filled(store, spec)
        store.connection.execute("UPDATE cells SET case_key = 'another'")
        store.want(wanted(spec))
        assert [cell.key for cell in store.held()] == [cell.key for cell in spec.cells]
