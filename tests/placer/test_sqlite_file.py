"""SQLite files: what a copy of one holds, who can read it, and where several machines may use it."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from placer import sqlite_file
from placer.sqlite_file import SQLiteFile, is_other, is_shared


@pytest.fixture
def file(tmp_path):
    """A file that is being written."""
    with closing(SQLiteFile(tmp_path / "some.sqlite")) as opened:
        opened.write_ahead()
        with opened.transaction():
            opened.connection.execute("CREATE TABLE numbers (number)")
        yield opened


def write(file, number):
    with file.transaction():
        file.connection.execute("INSERT INTO numbers VALUES (?)", (number,))


def numbers(path, **options):
    with closing(SQLiteFile(path, reads=True, **options)) as opened:
        return [number for (number,) in opened.connection.execute("SELECT number FROM numbers")]


def mode(file):
    return file.connection.execute("PRAGMA journal_mode").fetchone()[0]


def test_a_copy_of_the_file_alone_has_what_was_written_before_it_settled(file, tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(sqlite_file.time, "monotonic", lambda: file._settled_s + now[0])
    for number in range(3):
        write(file, number)
        file.settle()
    shutil.copy(file.path, tmp_path / "early.sqlite")
    assert mode(file) == "wal"
    with pytest.raises(sqlite3.OperationalError):  # not even the table
        numbers(tmp_path / "early.sqlite")
    now[0] = sqlite_file.SETTLE_EVERY_S
    write(file, 3)
    file.settle()
    shutil.copy(file.path, tmp_path / "copy.sqlite")
    assert numbers(tmp_path / "copy.sqlite") == [0, 1, 2, 3]


def test_what_was_closed_is_one_file_that_can_be_read_where_nothing_can_be_written(file):
    write(file, 7)
    file.close()
    file.close()
    assert [path.name for path in file.path.parent.iterdir()] == ["some.sqlite"]
    # What a file in WAL mode needs cannot be made in a folder without write permission; the header says which it is.
    assert file.path.read_bytes()[18:20] == bytes([1, 1])
    assert numbers(file.path) == [7]


def test_one_writer_that_closes_leaves_the_others_as_they_are(file):
    other = SQLiteFile(file.path, busy_s=60.0)
    other.write_ahead()
    write(other, 1)
    other.close()
    assert mode(file) == "wal"
    write(file, 2)
    assert numbers(file.path) == [1, 2]


def test_a_reader_at_the_end_leaves_all_in_the_file_itself(file, tmp_path):
    with closing(sqlite3.connect(file.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM numbers").fetchall()
        reader.execute("COMMIT")
        write(file, 3)
        file.close()
        shutil.copy(file.path, tmp_path / "copy.sqlite")
    assert numbers(tmp_path / "copy.sqlite") == [3]


def test_a_file_that_could_not_be_set_to_the_mode_is_so_later(tmp_path, monkeypatch):
    with closing(SQLiteFile(tmp_path / "some.sqlite", busy_s=0.0)) as file:
        file.connection.execute("CREATE TABLE numbers (number)")
        with closing(sqlite3.connect(file.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM numbers").fetchall()
            file.write_ahead()
            assert mode(file) == "delete"
        monkeypatch.setattr(sqlite_file, "SETTLE_EVERY_S", 0.0)
        file.settle()
        assert mode(file) == "wal"


def test_a_file_whose_writer_was_killed_in_a_transaction_can_be_read(tmp_path):
    # While others have the file open, it may not be in WAL mode: then a killed writer leaves a journal to be undone.
    path = tmp_path / "some.sqlite"
    program = f"""
import os, signal, sqlite3
connection = sqlite3.connect({str(path)!r}, isolation_level=None)
connection.execute("CREATE TABLE numbers (number)")
connection.execute("INSERT INTO numbers VALUES (7)")
connection.execute("PRAGMA cache_size=2")  # so that the transaction reaches the file before its end
connection.execute("BEGIN IMMEDIATE")
for number in range(2000):
    connection.execute("INSERT INTO numbers VALUES (?)", (str(number) * 100,))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    with (
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as reader,
        pytest.raises(sqlite3.OperationalError, match="readonly"),
    ):
        reader.execute("SELECT number FROM numbers")
    assert numbers(path) == [7]


def test_a_file_that_was_only_looked_at_keeps_its_mode(tmp_path):
    """It may be another program's."""
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as other:
        other.execute("PRAGMA journal_mode=wal")
        other.execute("CREATE TABLE numbers (number)")
    SQLiteFile(tmp_path / "other.sqlite").close()
    assert (tmp_path / "other.sqlite").read_bytes()[18:20] == bytes([2, 2])


def test_a_transaction_that_fails_has_written_nothing(file):
    with pytest.raises(sqlite3.IntegrityError), file.transaction():
        file.connection.execute("INSERT INTO numbers VALUES (1)")
        raise sqlite3.IntegrityError
    assert not file.connection.in_transaction and numbers(file.path) == []


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
server:/home /of-all nfs4 rw,relatime 0 0
/dev/vdb /of-all/local ext4 rw,relatime 0 0
server:/data /with\\040space cifs rw 0 0
me@host: /far fuse.sshfs rw 0 0
volume /gluster fuse.glusterfs rw 0 0
server:/x /daten/über nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/tmp/a.sqlite", False),
        ("/of-all/me/a.sqlite", True),
        ("/of-all/local/a.sqlite", False),
        ("/of-all-others/a.sqlite", False),
        ("/with space/a.sqlite", True),
        ("/far/a.sqlite", True),
        ("/gluster/a.sqlite", True),
        ("/daten/über/a.sqlite", True),
    ],
)
def test_file_systems_that_several_machines_share_are_known(path, shared, tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "MOUNTS", tmp_path / "mounts")
    assert not is_shared(sqlite_file.Path(path))
    sqlite_file.MOUNTS.write_text(MOUNTS)
    assert is_shared(sqlite_file.Path(path)) == shared


def test_on_a_shared_file_system_nothing_relies_on_shared_memory(file, monkeypatch):
    write(file, 1)
    monkeypatch.setattr(sqlite_file, "is_shared", lambda path: True)
    file.close()
    with closing(SQLiteFile(file.path)) as opened:
        opened.write_ahead()
        assert mode(opened) == "delete"
        write(opened, 2)
        assert numbers(file.path) == [1, 2]
        assert not list(file.path.parent.glob("*-shm"))


def test_a_folder_is_no_file_and_what_is_not_there_may_become_one(tmp_path):
    assert is_other(tmp_path) and not is_other(tmp_path / "new.sqlite")
