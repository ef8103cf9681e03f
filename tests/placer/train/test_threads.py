"""The training thread, the one beside it and those of the user wait for each other in one order only."""

from __future__ import annotations

from threading import Thread

import pytest
import tensorflow as tf

from placer.train.device_session import DeviceSession
from placer.train.steps.modes import UNTOUCHED

SOON_S = 0.2  # in which a thread that waits for nothing would have ended
LONG_S = 300.0  # in which it has to end once it need not wait any more


def adding():
    """A step, its variable, and a batch for it."""
    weight = tf.Variable([1.0, 2.0])
    return tf.function(lambda x: weight.assign_add(tf.reduce_sum(x) + tf.zeros(2))), weight, tf.constant([1.0, 1.0])


def test_capturing_waits_for_no_lock_whose_holder_waits_for_it(two_cpus, live_hand):
    """As where one step's script captures, and another step of the session joins the devices."""
    session = DeviceSession(None, False)
    (first, _, x), (second, _, _) = adding(), adding()
    one, other = live_hand(first, session=session), live_hand(second, session=session)
    for _ in range(4):
        one(x), other(x)
    with session.lock:
        captured = other.live.background(other.live.capture)
        assert other.live.thread.finish(LONG_S), "the thread in the background waits for the lock"
    assert len(captured.result()) > 1
    one.close(), other.close()


def test_a_signature_that_is_captured_stays_the_main_one(two_cpus, live_hand, monkeypatch):
    """Also where another one, of more calls, was about to become it."""
    step, _, _ = adding()
    hand = live_hand(step)
    short, long = tf.constant(1.0), tf.constant([1.0, 1.0])
    for x in (short, short, *[long] * 3):
        hand(x)
    main, variants = hand.live.main, hand.live.variants
    traced, captured = variants.is_traced, []

    def slow(variant):
        found = traced(variant)
        if variant is not main and not captured:
            captured.append(hand.live.background(hand.live.capture).result(LONG_S))
        return found

    monkeypatch.setattr(variants, "is_traced", slow)
    hand(long)
    assert captured and hand.live.main is main and main.captured is not None
    hand.close()


SCRIPTS = {
    "background": lambda live, built: live.background(lambda: None).result(),
    "settle": lambda live, built: live.settle(built),
    "release": lambda live, built: live.release([]),
    "mode": lambda live, built: setattr(live, "mode", UNTOUCHED),
}


@pytest.mark.parametrize("what", SCRIPTS)
def test_a_script_changes_nothing_while_another_thread_recovers(two_cpus, live_hand, what):
    """As where a reader in a thread of the user found a device lost: nothing may be built or moved meanwhile."""
    step, _, x = adding()
    hand = live_hand(step)
    for _ in range(4):
        hand(x)
    hand.place()
    built = hand.live.build([1] * len(hand.live.captured().graph), (), "other")
    with hand.live.session.lock:
        script = Thread(target=SCRIPTS[what], args=(hand.live, built))
        script.start()
        script.join(SOON_S)
        assert script.is_alive()
    script.join(LONG_S)
    assert not script.is_alive()
    hand.close()
