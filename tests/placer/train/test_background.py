"""Work beside the training: one after another, cancelled before it begins or waited for."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import CancelledError
from threading import Event, Thread

import pytest

from placer.train.background import BackgroundThread


def test_work_that_has_not_begun_is_cancelled_and_the_rest_waited_for():
    background, begun, release = BackgroundThread(), Event(), Event()
    first = background.submit(lambda: (begun.set(), release.wait(), "done")[-1])
    second = background.submit(lambda: "never")
    begun.wait()
    cancelling = Thread(target=background.cancel)
    cancelling.start()
    with pytest.raises(CancelledError):
        second.result()
    assert not first.done() and cancelling.is_alive()
    release.set()
    cancelling.join()
    assert first.result() == "done"
    background.close()


def test_what_work_raises_stays_in_its_future():
    background = BackgroundThread()
    future = background.submit(lambda: 1 // 0)
    background.finish()
    assert isinstance(future.exception(), ZeroDivisionError)
    background.close()


def test_closing_waits_no_longer_than_it_may():
    background, begun, release = BackgroundThread(), Event(), Event()
    stuck = background.submit(lambda: (begun.set(), release.wait())[-1])
    begun.wait()
    assert not background.close(limit_s=0.01)
    assert background.submit(lambda: 1).cancelled()
    release.set()
    assert stuck.result(30) and background.finish()


@pytest.mark.slow
def test_a_program_ends_although_work_does_not():
    code = (
        "from placer.train.background import BackgroundThread as B; import time; B().submit(lambda: time.sleep(3600))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
