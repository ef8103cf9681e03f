"""The journal: nothing is lost, nothing is flooded, and nothing of it can stop the training."""

import json
import logging
import math
import subprocess
import sys
import threading
from importlib.util import find_spec

import numpy as np
import pytest

from search.online.journal import FILE_NAME, MOST_ENTRIES, Entry, Journal, tensorboard
from tests.clock import Clock


class FakeBoard:
    """Remembers; or fails, as often as told to."""

    def __init__(self, failures=0):
        self.scalars, self.failures, self.opened = [], failures, 0

    def __call__(self, log_dir):
        self.opened += 1
        return self

    def scalar(self, step, name, value):
        if self.failures:
            self.failures -= 1
            raise RuntimeError("writer is gone")
        self.scalars.append((step, name, value))


def read(log_dir):
    return [json.loads(line) for line in (log_dir / FILE_NAME).read_text().splitlines()]


def test_an_entry_is_kept_logged_and_written(tmp_path, caplog):
    journal = Journal(tmp_path / "logs", clock=lambda: 12.5)
    with caplog.at_level(logging.INFO, logger="placer"):
        journal.entry(120, "alarm", "load on worker:1 up 2.1x", ratio=2.1, device="worker:1")
    (entry,) = journal.entries
    assert entry == Entry(12.5, 120, "alarm", "load on worker:1 up 2.1x", {"ratio": 2.1, "device": "worker:1"})
    assert [(r.name, r.levelno) for r in caplog.records] == [("placer", logging.INFO)]
    assert "load on worker:1 up 2.1x" in caplog.text
    (written,) = read(tmp_path / "logs")
    assert next(iter(written)) == "format"
    assert written == {
        "format": "placer.journal/1",
        "at_s": 12.5,
        "step": 120,
        "kind": "alarm",
        "sentence": "load on worker:1 up 2.1x",
        "numbers": {"ratio": 2.1, "device": "worker:1"},
        "dry_run": False,
    }


def test_the_file_is_made_with_the_first_entry_and_continued_by_the_next_journal(tmp_path):
    journal = Journal(tmp_path / "logs")
    assert not (tmp_path / "logs").exists()
    journal.entry(0, "start", "first")
    Journal(tmp_path / "logs").entry(1, "start", "second")
    assert [line["sentence"] for line in read(tmp_path / "logs")] == ["first", "second"]


def test_memory_keeps_the_last_and_the_file_keeps_all(tmp_path):
    journal = Journal(tmp_path)
    for step in range(MOST_ENTRIES + 5):
        journal.entry(step, "measured", "a")
    assert [entry.step for entry in journal.entries] == list(range(5, MOST_ENTRIES + 5))
    assert [line["step"] for line in read(tmp_path)] == list(range(MOST_ENTRIES + 5))


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    board = FakeBoard()
    journal = Journal(board=board)
    journal.entry(1, "start", "here we go")
    journal.scalar(1, "step_s", 0.1)
    assert list(tmp_path.iterdir()) == []
    assert board.opened == 0


def test_a_dry_run_says_so(tmp_path):
    journal = Journal(tmp_path, dry_run=True)
    journal.entry(7, "moved", "pays back in 40 steps: moving.")
    assert journal.entries[0].dry_run
    assert "dry run: pays back" in journal.lines()
    assert read(tmp_path)[0]["dry_run"] is True


def test_lines_are_for_people():
    journal = Journal()
    journal.entry(3, "plan", "24 candidates\nin 1.2 s")
    journal.entry(12000, "stayed", "gains 1.2%, less than the noise of 2.0%: staying.")
    assert journal.lines() == (
        "step      3 plan     24 candidates in 1.2 s\n"
        "step  12000 stayed   gains 1.2%, less than the noise of 2.0%: staying."
    )


def test_a_folder_that_cannot_be_written_warns_once_and_stops_nothing(tmp_path, caplog):
    """A file stands where the folder should be; once it is gone, the journal is written."""
    (tmp_path / "logs").write_text("")
    journal = Journal(tmp_path / "logs")
    for step in range(3):
        journal.entry(step, "measured", "a")
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "training goes on" in warnings[0].getMessage()
    assert len(journal.entries) == 3
    (tmp_path / "logs").unlink()
    journal.entry(3, "measured", "a")
    assert [line["step"] for line in read(tmp_path / "logs")] == [3]


def test_a_full_disk_warns_once_and_stops_nothing(tmp_path, caplog):
    (tmp_path / FILE_NAME).symlink_to("/dev/full")
    journal = Journal(tmp_path)
    for step in range(3):
        journal.entry(step, "measured", "a")
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1
    assert len(journal.entries) == 3


def test_numbers_are_what_json_knows(tmp_path):
    Journal(tmp_path).entry(
        np.int64(4), "measured", "a", step_s=np.float32(0.5), groups=np.int64(14), gain=math.nan,
        wait_s=math.inf, ready=True, why=None, whole=3.0, path=tmp_path,
    )  # fmt: skip
    text = (tmp_path / FILE_NAME).read_text()
    numbers = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["numbers"]
    assert numbers == {
        "step_s": 0.5, "groups": 14, "gain": None, "wait_s": None, "ready": True, "why": None, "whole": 3.0,
        "path": str(tmp_path),
    }  # fmt: skip
    assert isinstance(numbers["groups"], int)


def test_several_threads_lose_nothing(tmp_path):
    journal = Journal(tmp_path)

    def note(thread):
        for step in range(50):
            journal.entry(step, "measured", f"thread {thread}")

    threads = [threading.Thread(target=note, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read(tmp_path)) == len(journal.entries) == 200


def test_scalars_are_shown_at_most_every_tenth_step(tmp_path):
    board = FakeBoard()
    journal = Journal(tmp_path, board=board, clock=Clock(tick_s=2.0))
    for step in range(25):
        journal.scalar(step, "step_s", 0.1)
    journal.scalar(5, "ratio", 2.0)
    journal.scalar(6, "nothing", math.nan)
    assert board.scalars == [(0, "step_s", 0.1), (10, "step_s", 0.1), (20, "step_s", 0.1), (5, "ratio", 2.0)]
    journal.scalar(0, "step_s", 0.3)  # another training begins
    assert board.scalars[-1] == (0, "step_s", 0.3)
    assert board.opened == 1


def test_scalars_of_short_steps_are_shown_once_a_second(tmp_path):
    board, clock = FakeBoard(), Clock()
    journal = Journal(tmp_path, board=board, clock=clock)
    for step in range(60_000):
        clock.now_s += 1e-3
        journal.scalar(step, "step_s", 1e-3)
    assert 55 <= len(board.scalars) <= 61


def test_a_board_that_fails_is_opened_anew_and_in_the_end_left_alone(tmp_path, caplog):
    once, always = FakeBoard(failures=1), FakeBoard(failures=10**9)
    for board in (once, always):
        journal = Journal(tmp_path, board=board, clock=Clock(tick_s=2.0))
        for step in range(0, 100, 10):
            journal.scalar(step, "step_s", 0.1)
    assert (once.opened, len(once.scalars)) == (2, 9)
    assert always.opened == 3
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 2


def test_without_tensorboard_nothing_is_asked_for_twice(tmp_path):
    asked = []
    journal = Journal(tmp_path, board=asked.append, clock=Clock(tick_s=2.0))
    for step in range(0, 100, 10):
        journal.scalar(step, "step_s", 0.1)
    assert asked == [tmp_path]


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_reads_scalars_of_two_steps_with_one_folder(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    journals = [Journal(tmp_path / "new", clock=Clock(tick_s=2.0)) for _ in range(2)]
    for k, journal in enumerate(journals):
        for step in (0, 5, 10):
            journal.scalar(step, "step_s", 0.25 + k)
    found = []
    for path in (tmp_path / "new").iterdir():
        board = EventAccumulator(str(path)).Reload()
        found.append([(event.step, event.value) for event in board.Scalars("step_s")])
    assert sorted(found) == [[(0, 0.25), (10, 0.25)], [(0, 1.25), (10, 1.25)]]


def test_without_the_package_there_is_no_board(tmp_path, monkeypatch):
    monkeypatch.setattr("search.online.journal.find_spec", lambda name: None)
    assert tensorboard(tmp_path) is None


def test_a_journal_without_scalars_needs_no_tensorflow():
    code = (
        "import sys; import search.online.journal as j\n"
        "import search.online.diagnose.change_detection, search.online.diagnose.diagnosis\n"
        "j.Journal().entry(0, 'start', 'a'); sys.exit('tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
