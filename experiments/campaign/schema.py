"""The tables of a campaign's store."""

from __future__ import annotations

# Each script raises the schema by one version; an older file gets the scripts that it lacks. An empty script keeps
# older Placers from files whose rows they would call damaged; an older file can then be read as it is.
MIGRATIONS = (
    """
    CREATE TABLE cases (
        key TEXT PRIMARY KEY, kind TEXT NOT NULL, terms TEXT NOT NULL, opened TEXT
    ) WITHOUT ROWID;
    CREATE TABLE cells (
        key TEXT PRIMARY KEY, place INTEGER NOT NULL, case_key TEXT NOT NULL REFERENCES cases,
        searcher TEXT NOT NULL, seed INTEGER NOT NULL, wanted INTEGER NOT NULL, minutes REAL,
        state TEXT, ended TEXT, final TEXT
    ) WITHOUT ROWID;
    CREATE TABLE trials (
        cell TEXT NOT NULL REFERENCES cells, n INTEGER NOT NULL, placement TEXT NOT NULL, result TEXT NOT NULL,
        seconds REAL NOT NULL, at REAL NOT NULL, PRIMARY KEY (cell, n)
    ) WITHOUT ROWID;
    CREATE TABLE failures (
        id INTEGER PRIMARY KEY, case_key TEXT NOT NULL, cell TEXT, n INTEGER, reason TEXT NOT NULL,
        detail TEXT NOT NULL, at REAL NOT NULL
    );
    """,
    """
    CREATE TABLE contents (
        case_key TEXT NOT NULL REFERENCES cases, name TEXT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (case_key, name)
    ) WITHOUT ROWID;
    """,
    "",  # results of trials say whether they were refused, and which device ran out of memory with how many bytes
)
