"""Opens, writes and closes Placer's SQLite files, which all do this in the same way."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

MOUNTS = Path("/proc/self/mounts")
# On these file systems, processes on several machines may use a file. They share no memory, which SQLite's WAL needs.
SHARED = (
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "sshfs", "afs", "9p"),
    *("lustre", "gpfs", "beegfs", "ceph", "ceph-fuse", "glusterfs"),
)
ESCAPED = re.compile(r"\\([0-7]{3})")  # for example, a space in the name of a mount point
SETTLE_EVERY_S, CLOSE_BUSY_S = 1.0, 1.0


class SQLiteFile:
    """An open file. While it is written it is in WAL mode, and can be read at any time. Once the last writer has closed
    it, without readers at that moment, it is one plain file, which can be copied, and read from a folder without write
    permission.

    On file systems that several machines share, writers do not use WAL mode; writers and readers wait for one another.
    """

    def __init__(self, path: Path, *, reads: bool = False, busy_s: float = 5.0, any_thread: bool = False) -> None:
        """Open the file; if there is none, it is created, unless `reads`. reads: open it only for reading. busy_s:
        seconds to wait while others write. any_thread: whether several threads use it in turn. Raises sqlite3.Error.
        """
        self.path = path
        self.connection = sqlite3.connect(
            _uri(path, "ro" if reads else "rwc"),
            timeout=busy_s, isolation_level=None, check_same_thread=not any_thread, uri=True,
        )  # fmt: skip
        self._settled_s, self._has_begun, self._has_mode = time.monotonic(), False, False
        if reads:
            self._undo_unfinished(busy_s)

    def write_ahead(self) -> None:
        """Begin to write. Raises sqlite3.Error."""
        mode, self._has_begun = "delete" if is_shared(self.path) else "wal", True
        try:
            (found,) = self.connection.execute(f"PRAGMA journal_mode={mode}").fetchone()
            self._has_mode = found == mode
        except sqlite3.Error as error:
            if code(error) != sqlite3.SQLITE_BUSY:  # others have it open; `settle` tries again
                raise
        self.connection.execute("PRAGMA synchronous=FULL")

    def _undo_unfinished(self, busy_s: float) -> None:
        """Undo the transaction in which a writer was killed, if there is one. SQLite leaves this to whoever opens the
        file next, and a connection that only reads cannot do it: every statement would fail. Raises sqlite3.Error.
        """
        try:
            self.connection.execute("PRAGMA user_version")
        except sqlite3.Error as error:  # whoever reads next finds the others
            if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
                with closing(sqlite3.connect(_uri(self.path, "rw"), timeout=busy_s, uri=True)) as writer:
                    writer.execute("PRAGMA user_version")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Apply all statements of the block, or none of them, with other writers kept out. Raises sqlite3.Error."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            yield
            self.connection.execute("COMMIT")
        finally:
            if self.connection.in_transaction:
                with suppress(sqlite3.Error):
                    self.connection.execute("ROLLBACK")

    def settle(self) -> None:
        """Move what was written into the file itself, as far as readers allow it, so that the file alone is nearly
        complete. Does so at most once in SETTLE_EVERY_S.
        """
        if time.monotonic() >= self._settled_s + SETTLE_EVERY_S:
            with suppress(sqlite3.Error):  # the next call tries again
                if not self._has_mode:
                    self.write_ahead()
                self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._settled_s = time.monotonic()

    def close(self) -> None:
        """Close it; harmless when called twice."""
        if self._has_begun:
            with suppress(sqlite3.Error):  # others have it open, or it is closed
                self.connection.execute(f"PRAGMA busy_timeout={CLOSE_BUSY_S * 1000:.0f}")
                self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self.connection.execute("PRAGMA busy_timeout=0")
                self.connection.execute("PRAGMA journal_mode=delete")
        self.connection.close()


def _uri(path: Path, mode: str) -> str:
    return f"{path.resolve().as_uri()}?mode={mode}"


def is_other(path: Path) -> bool:
    """Whether the path exists and is no regular file; SQLite would wait forever for a pipe."""
    return path.exists() and not path.is_file()


def is_shared(path: Path) -> bool:
    """Whether a path is on a file system that several machines share."""
    try:
        mounts = [line.split(" ")[1:3] for line in MOUNTS.read_text(errors="surrogateescape").splitlines()]
    except OSError:
        return False
    above = [str(folder) for folder in (path.resolve(), *path.resolve().parents)]
    kind_of = {ESCAPED.sub(lambda found: chr(int(found[1], 8)), point): kind for point, kind in mounts}
    kind = next((kind_of[folder] for folder in above if folder in kind_of), "")
    return kind.removeprefix("fuse.") in SHARED


def code(error: Exception) -> int:
    """SQLite's primary result code; 0 if there is none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
