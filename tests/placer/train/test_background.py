"""Work beside the training: one after another, cancelled before it begins or waited for."""

from __future__ import annotations

import subprocess
import sys
import weakref
from concurrent.futures import CancelledError
from threading import Event, Thread

import pytest

from placer.train import background
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


def test_what_work_holds_is_free_by_the_time_it_is_done():
    """Not some time later, when the thread is next scheduled: whoever waited may look whether it is free."""
    background, release, looked, held, still = BackgroundThread(), Event(), Event(), Event(), []
    there = weakref.ref(held)
    future = background.submit(lambda held=held: release.wait())
    future.add_done_callback(lambda _: (still.append(there()), looked.set()))
    del held
    release.set()
    assert looked.wait(60) and still == [None]
    background.close()


def test_closing_waits_no_longer_than_it_may():
    background, begun, release = BackgroundThread(), Event(), Event()
    stuck = background.submit(lambda: (begun.set(), release.wait())[-1])
    begun.wait()
    assert not background.close(limit_s=0.01)
    assert background.submit(lambda: 1).cancelled()
    release.set()
    assert stuck.result(300) and background.finish()


def test_at_exit_work_that_has_begun_is_waited_for():
    thread, begun, release = BackgroundThread(), Event(), Event()
    first = thread.submit(lambda: (begun.set(), release.wait(), "done")[-1])
    second = thread.submit(lambda: "never")
    begun.wait()
    ending = Thread(target=background._finish)
    ending.start()
    with pytest.raises(CancelledError):
        second.result()
    assert ending.is_alive()
    release.set()
    ending.join()
    assert first.result() == "done"
    thread.close()


@pytest.mark.slow
def test_the_end_of_a_program_waits_for_what_has_begun():
    code = (
        "from placer.train.background import BackgroundThread; from threading import Event; import time\n"
        "background, begun = BackgroundThread(), Event()\n"
        "background.submit(lambda: (begun.set(), time.sleep(0.3), print('done', flush=True)))\n"
        "background.submit(lambda: print('never', flush=True))\n"
        "begun.wait()"
    )
    ran = subprocess.run([sys.executable, "-c", code], timeout=900, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr


@pytest.mark.nightly
def test_a_training_of_few_steps_ends_well():
    code = (
        "import placer; placer.split('cpus:2'); import tensorflow as tf\n"
        "w = tf.Variable(tf.ones((64, 64)))\n"
        "step = placer.autoplace(tf.function(lambda x: w.assign_sub(x)), devices='cpus:2')\n"
        "for _ in range(5): step(tf.ones((64, 64)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], timeout=900, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-500:]


@pytest.mark.slow
def test_a_program_ends_although_work_does_not():
    code = (
        "from placer.train.background import BackgroundThread as B; import time; B().submit(lambda: time.sleep(3600))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=900).returncode == 0
