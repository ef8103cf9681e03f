"""What a plain Python step reads, writes and draws is found, and a changed state is another state."""

from __future__ import annotations

import argparse
import array
import builtins
import cmath
import collections
import configparser
import contextlib
import csv
import ctypes
import datetime
import enum
import fractions
import functools
import io
import itertools
import json
import logging
import math
import multiprocessing
import operator
import os
import pathlib
import pprint
import queue
import random
import re
import sys
import threading
import time
import types
import typing
import weakref
from dataclasses import dataclass
from os.path import exists
from sys import exit as leave

import keras
import numpy as np
import pytest
import tensorflow as tf
import wrapt
from absl import flags
from absl import logging as absl_logging
from PIL import _imaging

from placer.trace.python.kinds import is_library
from placer.trace.python.library_names import is_read_by_libraries
from placer.trace.python.state import MOST_STATES, PythonState, why_not
from placer.trace.python.survey import survey
from placer.trace.python.survey.containers import visit_dict

WEIGHT = tf.Variable(1.0)
RATE = 0.1
CLOCKS = {"now": time.time}
FLAGS = {"clip": False}
HISTORY: list[float] = []
COUNT = 0
LOG = logging.getLogger("test")
OPTIMIZER = keras.optimizers.SGD(0.1)
DRAWS = np.random.default_rng(3)
CONFIG = types.ModuleType("users_config")
CONFIG.rate = 0.1
ROWS, QUEUE = csv.writer(io.StringIO()), queue.SimpleQueue()
LOCK, CONDITION = threading.Lock(), threading.Condition()
TABLE, NUMBERS, HOME = {"rows": ROWS}, np.ones(3), pathlib.Path("/data")
WORDS, SINCE, HALF = re.compile("a+"), datetime.date(2026, 1, 1), fractions.Fraction(1, 2)


class Rates:
    first = 0.1

    def __init__(self):
        self.rate, self.unread = 0.1, 0

    def of(self, x):
        return x * self.rate


@dataclass(slots=True)
class Slotted:
    rate: float = 0.1


def helper(x):
    return x * RATE


# Steps that a trace would not repeat.


def prints(x):
    print("step")
    return x


def logs(x):
    LOG.info("step")
    return x


def clock(x):
    return x * time.time()


def environment(x):
    return x * float(os.environ.get("RATE", "1"))


def draws(x):
    return x * np.random.rand()


def draws_own(x):
    return x * DRAWS.random()


def draws_python(x):
    return x * random.random()


def imports(x):
    from random import random as draw

    return x * draw()


def opens(x):
    with open("/dev/null") as file:  # noqa: PTH123
        return x * len(file.read())


def writes_global(x):
    global COUNT
    COUNT += 1
    return x


def writes_item(x):
    FLAGS["clip"] = not FLAGS["clip"]
    return x


def grows(x):
    HISTORY.append(x)
    return x


def writes_alias(x):
    flags = FLAGS
    flags["clip"] = True
    return x


def writes_argument(x, found):
    found["loss"] = x
    return x


def seeds(x):
    tf.random.set_seed(3)
    return x


def asks(x):
    return x if tf.executing_eagerly() else 2 * x


def catches(x):
    try:
        return tf.debugging.check_numerics(x, "bad")
    except tf.errors.InvalidArgumentError:
        return x


def catches_one_of(x):
    try:
        return tf.debugging.check_numerics(x, "bad")
    except (KeyError, tf.errors.OpError) as error:
        return x * len(str(error))


def catches_all(x):
    try:
        return tf.debugging.check_numerics(x, "bad")
    except:  # noqa: E722
        return x


def catches_the_end(x, values):
    try:
        return x * next(values)
    except StopIteration:
        return x


def suppresses(x):
    with contextlib.suppress(tf.errors.InvalidArgumentError):
        x = tf.debugging.check_numerics(x, "bad")
    return x


def calls_one_that_catches(x):
    return catches(x)


def calls_one_that_prints(x):
    return prints(x)


def counting():
    calls = 0

    def step(x):
        nonlocal calls
        calls += 1
        return x

    return step


class Trainer:
    def __init__(self):
        self.last, self.scale = None, Rates()

    def step(self, x):
        self.last = x
        return x

    def deep(self, x):
        self.scale.rate *= 0.5
        return x

    def __call__(self, x):
        return self.step(x)


def iterated(values):
    def step(x):
        return x * next(values)

    return step


def flagged(rate=0.1):
    """absl's flags with one of their own, so that no test shares it."""
    found = flags.FlagValues()
    holder = flags.DEFINE_float("rate", rate, "", flag_values=found)
    found(["train"])
    return found, holder


def writes_rows(x):
    ROWS.writerow([x])
    return x


def writes_rows_of_a_table(x):
    TABLE["rows"].writerow([x])
    return x


def queues(x):
    QUEUE.put(x)
    return x


def locks(x):
    with LOCK:
        return x


def waits(x):
    with CONDITION:
        return x


def looks_at_files(x):
    return x if tf.io.gfile.exists("/data/stop") else 2 * x


def looks_at_paths(x):
    return x if exists("/data/stop") else 2 * x  # noqa: PTH110


def looks_by_a_path(x):
    return x if HOME.exists() else 2 * x


def logs_by_absl(x):
    absl_logging.info("step")
    return x


def shows(x):
    pprint.pprint("step")
    return x


def loads(x):
    return x * np.load("rates.npy")[0]


def stores(x):
    NUMBERS.tofile("numbers.bin")
    return x


def sets_epsilon(x):
    keras.config.set_epsilon(1e-5)
    return x


def sets_dtype_policy(x):
    keras.config.set_dtype_policy("mixed_bfloat16")
    return x


@functools.lru_cache
def cached_gains(count):
    return tf.linspace(0.5, 1.5, count)


@functools.cache
def cached_once():
    return types.SimpleNamespace(rate=0.1)


@functools.lru_cache(maxsize=0)
def keeps_nothing():
    return types.SimpleNamespace(rate=0.1)


CACHED_OP = functools.lru_cache(tf.linspace)


class Cached:
    rate = functools.cache(lambda self: 0.1)


class CachedItems:
    __getitem__ = functools.lru_cache(lambda self, item: 0.1)


class Singleton(type):
    _instances: typing.ClassVar = {}

    def __call__(cls):
        if cls not in cls._instances:
            cls._instances[cls] = super().__call__()
        return cls._instances[cls]


class Single(metaclass=Singleton):
    rate = 0.1

    def another(self):
        return type(self)()

    @classmethod
    def get(cls):
        return cls()


class SingleTrainer(Single):
    def of(self, x):
        return x * self.rate * (not hasattr(super(), "of"))


SINGLE, TRAINER, CREATED = Single(), SingleTrainer(), []


class Created:
    rate = 0.1

    def __init__(self):
        CREATED.append(self)


AN_OBJECT, TheClass = Created(), Created


def module_of(code, kind=types.ModuleType, **values):
    module = kind("users_config")
    exec(code, vars(module))
    vars(module).update(values)
    return module


PRINTS_NAMES = "def __getattr__(name):\n    print(name)\n    return 0.1"
IMPORTS_NAMES = (
    "import importlib\ndef __getattr__(name):\n    return getattr(importlib.import_module('users_lazy'), name)"
)


class LazyModule(types.ModuleType):
    def __getattr__(self, name):
        print(name)
        return 0.1

    @property
    def doubled(self):
        return self.RATE * 2


LAZY = module_of(PRINTS_NAMES, RATE=0.1)
LAZY.part = module_of(PRINTS_NAMES, RATE=0.1)
LAZY_CLASSED, LAZY_LISTED = module_of("", LazyModule, RATE=0.1), [module_of(PRINTS_NAMES)]
LAZY_HELD = types.SimpleNamespace(config=module_of(PRINTS_NAMES))


def rate_of(config):
    return config.MISSING


@wrapt.decorator
def by_wrapt(wrapped, instance, args, kwargs):
    return wrapped(*args, **kwargs)


@by_wrapt
def decorated(x):
    return x * RATE


class Decorated:
    @by_wrapt
    def rate(self):
        return RATE

    @by_wrapt
    def counted(self):
        self.calls = 1
        return RATE


@wrapt.decorator
def printing(wrapped, instance, args, kwargs):
    print(args)
    return wrapped(*args, **kwargs)


@wrapt.decorator
def counting_calls(wrapped, instance, args, kwargs):
    instance.calls += 1
    return wrapped(*args, **kwargs)


@wrapt.decorator
def noting(wrapped, instance, args, kwargs):
    args[0].append(1)
    return wrapped(*args, **kwargs)


@printing
def printed(x):
    return x * RATE


@noting
def noted(found):
    return RATE


@by_wrapt
def notes_in(found):
    found.append(1)
    return RATE


class Counted:
    calls = 0

    @counting_calls
    def rate(self):
        return RATE


class Timed:
    rate, every = 0.1, 2

    def __repr__(self):
        return f"{time.time()}"


class TimedToo(Timed):
    pass


def names_layers(x, k=2):
    for n in range(4):
        x = x * (n % k) * (n % TIMED.every) * len(f"layer_{n}") * TIMED.rate * TIMED_TOO.rate
    return x


def shows_by_a_kept_text(x):
    words = "%s"
    return x * len(words % TIMED)


TIMED, TIMED_TOO = Timed(), TimedToo()
REFERRED = Timed()
WEAK = weakref.proxy(REFERRED)


class OwnProxy(wrapt.ObjectProxy):
    pass


DECORATED, COUNTED, NOTED = Decorated(), Counted(), []
CACHED, PROXY, OWN_PROXY = CachedItems(), wrapt.ObjectProxy({"rate": 0.1}), OwnProxy({"rate": 0.1})
PRINTS = functools.partial(print, "step")


def leads_out_of_sight(x):
    return x * _imaging.getcodecstatus()


def count_up(counts):
    counts["n"] += 1


def note(counts, *, more):
    more.append(counts)


def pass_on(counts):
    count_up(counts)


class Counter:
    def __init__(self, counts=None):
        self.counts = counts

    def up(self, counts):
        counts["n"] += 1

    def step(self, x):
        if x > 0:
            count_up(self.counts)
        return x

    def other(self, x):
        if x > 0:
            Counter().up(self.counts)
        return x


def counts_in_a_helper(x):
    if x > 0:
        count_up(FLAGS)
    return x


def counts_in_a_helpers_helper(x):
    if x > 0:
        pass_on(counts=FLAGS)
    return x


def notes_by_keyword(x):
    if x > 0:
        note(x, more=HISTORY)
    return x


class Meter:
    def __init__(self):
        self.values = []


METERS = {"loss": Meter()}


def notes_in_a_meter(x):
    if x > 0:
        METERS["loss"].values.append(x)
    return x


def notes_in_meters(x):
    if x > 0:
        for meter in METERS.values():
            meter.values.append(x)
    return x


def notes_in_a_meter_that_it_gets(x):
    if x > 0:
        METERS.get("loss").values.append(x)
    return x


def rates_a_meter(x):
    METERS.get("loss").rate = x
    return x


def counts_in_a_method(x):
    counter = Counter()
    if x > 0:
        counter.up(FLAGS)
    return x


def ends(x):
    if tf.reduce_mean(x) > 1e9:
        sys.exit("it diverged")
    return x


def ends_by_name(x):
    if tf.reduce_mean(x) > 1e9:
        leave()
    return x


def raises_the_end(x):
    if tf.reduce_mean(x) > 1e9:
        raise SystemExit
    return x


class Stop(BaseException):
    """Caught by no `except Exception`."""


def raises_its_own(x):
    if tf.reduce_mean(x) > 1e9:
        raise Stop
    return x


class Skips:
    kinds = (tf.errors.InvalidArgumentError,)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        return issubclass(kind, self.kinds) or False


class Lets:
    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            return None
        for _ in range(2):
            self.leave()
        return False

    def leave(self):
        pass


SKIPS, LETS = Skips(), Lets()


def lets(x):
    with LETS, Lets():
        return x * 2.0


def skips(x):
    with Skips():
        return tf.debugging.check_numerics(x, "bad")


def skips_by_an_object(x):
    with SKIPS:
        return tf.debugging.check_numerics(x, "bad")


def skips_by_its_own(x):
    class Own:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return True

    with Own():
        return tf.debugging.check_numerics(x, "bad")


def of_a_compiled_model(**given):
    """A step by a model that was compiled so."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
    model.compile(**{"optimizer": "sgd", "loss": "mse", **given})

    def step(x):
        return model.train_step((x, x))

    return step


def notes(y_true, y_pred):
    HISTORY.append(1.0)
    return y_true - y_pred


class Noting(keras.metrics.Mean):
    def update_state(self, y_true, y_pred, sample_weight=None):
        notes(y_true, y_pred)


class NotingRate(keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        HISTORY.append(1.0)
        return 0.1


class NotingSGD(keras.optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate):
        HISTORY.append(1.0)


COMPILED = [
    {"metrics": [notes]}, {"metrics": {"dense": ["mae", notes]}}, {"weighted_metrics": [[Noting()]]},
    {"metrics": [keras.metrics.MeanMetricWrapper(notes)]}, {"loss": notes}, {"loss": [notes]},
    {"optimizer": NotingSGD()},
    {"optimizer": keras.optimizers.SGD(NotingRate())},
]  # fmt: skip


def ends_a_batch(x):
    CALLBACKS.on_train_batch_end(0, {"loss": x})
    return x


def ends_a_batch_by_name(x):
    for when in ("begin", "end"):
        getattr(CALLBACKS, f"on_batch_{when}")(0)
    return x


def ends_a_batch_of_each(x):
    for callback in EACH:
        callback.on_batch_end(0)
    return x


class Ends(keras.callbacks.EarlyStopping):
    def ends(self):
        self.on_batch_end(0)


def ends_a_batch_of_its_own(x):
    OWN.ends()
    return x


def of_methods(*methods):
    def step(x):
        for method in methods:
            method(0)
        return x

    return step


EACH, OWN = [keras.callbacks.EarlyStopping()], Ends()
CALLBACKS = keras.callbacks.CallbackList(EACH)


def large(values):
    def step(x):
        return x * values

    return step


REFUSED = [
    (prints, "print"), (logs, "LOG"), (clock, "time.time"), (environment, "os.environ"), (draws, "np.random"),
    (draws_own, "DRAWS"), (draws_python, "random.random"), (imports, "random"), (opens, "open"),
    (writes_global, "`COUNT` (a global)"), (writes_item, "`FLAGS[]`"), (grows, "HISTORY.append"),
    (writes_alias, "`FLAGS[]`"), (writes_argument, "found"), (seeds, "set_seed"), (asks, "executing_eagerly"),
    (calls_one_that_prints, "print` in prints"), (counting(), "`calls` (a nonlocal)"), (Trainer().step, "self.last"),
    (Trainer().deep, "self.scale.rate"), (Trainer(), "self.last"), (functools.partial(prints), "print"),
    (catches, "catches exceptions (`tf.errors.InvalidArgumentError`)"), (catches_one_of, "catches exceptions"),
    (catches_all, "catches exceptions"), (catches_the_end, "`StopIteration`"), (suppresses, "contextlib.suppress"),
    (calls_one_that_catches, "in catches"),
    (skips, "may catch exceptions in Skips.__exit__"), (skips_by_an_object, "may catch exceptions in Skips.__exit__"),
    (skips_by_its_own, "may catch exceptions"), (ends, "sys.exit"), (ends_by_name, "leave"),
    (raises_the_end, "SystemExit"), (raises_its_own, "Stop"),
    (writes_rows, "ROWS"), (writes_rows_of_a_table, "TABLE"), (queues, "QUEUE"), (locks, "LOCK"),
    (waits, "CONDITION"),
    (looks_at_files, "tf.io.gfile"), (looks_at_paths, "exists"), (looks_by_a_path, "HOME.exists"),
    (logs_by_absl, "absl_logging"), (shows, "pprint"), (loads, "np.load"), (stores, "NUMBERS.tofile"),
    (sets_epsilon, "keras.config"), (leads_out_of_sight, "_imaging.getcodecstatus"),
    (functools.partial(lambda read, x: x * read(), _imaging.getcodecstatus), "compiled function"),
    (counts_in_a_helper, "`counts[]` in count_up"), (counts_in_a_helpers_helper, "`counts[]` in count_up"),
    (notes_by_keyword, "changes `more.append` in note"), (counts_in_a_method, "`counts[]` in Counter.up"),
    (Counter({"n": 0}).step, "`counts[]` in count_up"), (Counter({"n": 0}).other, "`counts[]` in Counter.up"),
    *((of_a_compiled_model(**given), "HISTORY.append") for given in COMPILED),
    (ends_a_batch, "`CALLBACKS.on_train_batch_end` of a Keras callback"), (ends_a_batch_by_name, "Keras callback"),
    (ends_a_batch_of_each, "on_batch_end"), (ends_a_batch_of_its_own, "OWN.on_batch_end"),
    (of_methods(CALLBACKS.on_train_batch_end), "Keras callback"),
    (sets_dtype_policy, "keras.config"), (lambda x: PRINTS() or x, "PRINTS"),
    (lambda x: x * cached_gains(3), "calls `cached_gains`, whose results functools.lru_cache keeps out of sight"),
    (cached_gains, "calls `step`, whose results"), (lambda x: x * CACHED_OP(0.0, 1.0, 3), "calls `CACHED_OP`"),
    (lambda x: x * Cached().rate(), "calls `Cached.rate`"),
    (lambda x: x * CACHED[0], "calls `CachedItems.__getitem__`"),
    (lambda x: x * keeps_nothing().rate, "those of a trace, too; call it outside of the step"),
    (lambda x: x * cached_once().rate, "call it once before the first step"),
    (lambda x: x * Single().rate, "writes `cls._instances[]` in Singleton.__call__"),
    (lambda x: x * SINGLE.another().rate, "writes `cls._instances[]` in Singleton.__call__"),
    (lambda x: x * SINGLE.get().rate, "writes `cls._instances[]` in Singleton.__call__"),
    (lambda x: x * AN_OBJECT.rate * TheClass().rate, "changes `CREATED.append` in Created.__init__"),
    (lambda x: x * LAZY.MISSING, "print` in __getattr__"), (lambda x: x * LAZY.part.MISSING, "print` in __getattr__"),
    (lambda x, name="MIS": x * getattr(LAZY, name + "SING"), "print` in __getattr__"),
    (lambda x: x * rate_of(LAZY), "print` in __getattr__"), (lambda x: x * LAZY_LISTED[0].MISSING, "print` in"),
    (lambda x: x * LAZY_HELD.config.MISSING, "print` in"), (lambda x: x * LAZY_CLASSED.MISSING, "print` in LazyModule"),
    (lambda x: x * LAZY.__getattr__("RATE"), "print` in __getattr__"),
    (lambda x: x * TIMED.rate * len(f"{TIMED_TOO}"), "uses `time.time` in Timed.__repr__"),
    (shows_by_a_kept_text, "uses `time.time` in Timed.__repr__"),
    (lambda x, words="%s": x * len(words % TIMED), "uses `time.time` in Timed.__repr__"),
    (lambda x: x * len("%s %s" % (TIMED, 1)), "uses `time.time` in Timed.__repr__"),  # noqa: UP031
    (lambda x: x * len(repr(TIMED)), "uses `time.time` in Timed.__repr__"),
    (lambda x: printed(x), "print` in printing"), (printed, "print` in printing"),
    (lambda x: x * DECORATED.counted(), "writes `self.calls` in Decorated.counted"),
    (lambda x: x * COUNTED.rate(), "writes `instance.calls` in counting_calls"),
    (lambda x: x * noted(NOTED), "changes `args[].append` in noting"),
    (lambda x: x * notes_in(NOTED), "changes `found.append` in notes_in"),
    (lambda x: x * PROXY.setdefault("rate", 0.1), "changes `PROXY.setdefault`"),
    (notes_in_a_meter, "changes `METERS[].values.append`"), (notes_in_meters, "changes `METERS[].values.append`"),
    (notes_in_a_meter_that_it_gets, "changes `METERS[].values.append`"), (rates_a_meter, "writes `METERS[].rate`"),

    (lambda x: x * OWN_PROXY["rate"], "reads `OWN_PROXY`, and Placer cannot see into a OwnProxy"),
    (lambda x: x * WEAK.rate, "reads `WEAK`, and Placer cannot see into a "),
    (iterated(iter([1.0])), "values"), (large(np.zeros(100_000)), "array"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("step", "word"), REFUSED, ids=[getattr(s, "__name__", str(i)) for i, (s, _) in enumerate(REFUSED)]
)
def test_code_that_a_trace_would_not_repeat_is_named(step, word):
    why = why_not(step)
    assert why is not None and word in why


# Steps that may be traced.


def clean(x):
    found = {}
    found["loss"] = x * RATE
    losses = []
    for part in (x, x):
        losses.append(part * 2)  # noqa: PERF401
    if FLAGS["clip"]:
        losses = [tf.clip_by_value(loss, 0.0, 1.0) for loss in losses]
    OPTIMIZER.learning_rate = 0.1
    tf.print("loss", x)
    WEIGHT.assign_sub(x)
    return helper(found["loss"]) + sum(losses)


def nested(x):
    count = 0

    def inner(y):
        nonlocal count
        count += 1
        return y

    return inner(x) * count


def guarded(x):
    with tf.GradientTape() as tape, tf.name_scope("guarded"):
        tape.watch(x)
    try:
        scale = FLAGS["scale"]
    except KeyError:
        scale = RATE
    for _ in range(2):
        try:
            x = x * scale
        finally:
            x = x + 1.0
    with tf.name_scope("more"):
        return [x for _ in range(2)]


def from_the_standard_library(x):
    parts = collections.OrderedDict(zip("ab", itertools.repeat(x), strict=False))
    scale = math.sqrt(4.0) * operator.mul(2, 3) * len(json.dumps([1])) * float(HALF) * SINCE.year
    scale *= bool(WORDS.match("aa")) + len(array.array("d", [1.0])) + len(str(HOME / "rates"))
    with contextlib.nullcontext():
        return functools.reduce(operator.add, parts.values()) * scale * np.prod(NUMBERS)


def helped(x):
    """Its helpers change what this call has made."""
    counts, found = {"n": 0}, []
    pass_on(counts)
    Counter(counts).up(counts)
    note(x, more=found)
    count_up(dict(FLAGS, n=0))
    return x * counts["n"] + found[0]


@pytest.mark.parametrize(
    "step",
    [
        clean, nested, guarded, helped, lets, from_the_standard_library, Rates().of, tf.nn.relu,
        lambda x: x * CONFIG.rate, lambda x: x * len(is_library("keras")), lambda x: x * SINGLE.rate, TRAINER.of,
        names_layers, decorated, lambda x: decorated(x) * Decorated().rate() * DECORATED.rate() * PROXY["rate"],
        lambda x: x * LAZY.RATE * LAZY.part.RATE, lambda x: x * LAZY_CLASSED.RATE * LAZY_CLASSED.doubled,
    ],
)  # fmt: skip
def test_code_without_effects_may_be_traced(step):
    assert why_not(step) is None


# States.


def closure(thing):
    def step(x):
        return x * thing["lr"] if isinstance(thing, dict) else x * thing[0]

    return step


def change_default(step):
    step.__kwdefaults__["rate"] = 0.5


def with_default(x, *, rate=0.1):
    return x * rate


def test_a_changed_state_is_another_and_one_seen_before_is_known_again():
    rates = [0.1]
    state = PythonState(closure(rates))
    assert [state.number(), state.number()] == [0, 0]
    rates[0] = 0.2
    assert state.number() == 1
    rates[0] = 0.1
    assert state.number() == 0
    rates[0] = 1
    one = state.number()
    rates[0] = 1.0
    assert state.number() != one  # an int and a float trace differently


def test_where_a_value_is_found_is_a_part_of_the_state():
    groups = {"frozen": {}, "trained": {"a": WEIGHT}}
    state = PythonState(lambda x: x * sum(groups["trained"].values()))
    assert state.number() == 0
    groups["frozen"]["a"] = groups["trained"].pop("a")
    assert state.number() == 1
    rates = types.SimpleNamespace(decay=0.1)
    state = PythonState(lambda x: x * getattr(rates, "decay", 0.0) + getattr(rates, "rate", 0.0))
    assert state.number() == 0
    del rates.decay
    rates.rate = 0.1
    assert state.number() == 1


class Sorted(dict):
    def keys(self):
        return sorted(dict.keys(self))

    def values(self):
        return [self[key] for key in self.keys()]


def test_a_dict_whose_methods_are_the_users_is_compared_by_what_it_holds():
    rates = Sorted(rate=0.1)
    state = PythonState(lambda x: x * rates["rate"])
    assert state.number() == 0
    rates["rate"] = 0.2
    assert state.number() == 1


class Logging:
    """Has attributes of names that libraries have, too."""

    def __init__(self):
        self.losses, self.training = [], 0

    def log(self, text):
        print(text)

    def step(self, x):
        return tf.math.log(keras.losses.mean_squared_error(x, keras.layers.Dropout(0.5)(x, training=True)))


def test_a_name_that_is_read_of_libraries_alone_makes_no_state_of_what_the_user_calls_so():
    thing = Logging()
    state = PythonState(thing.step)
    assert state.number() == 0
    for i in range(2 * MOST_STATES):
        thing.losses.append(float(i))
        thing.training += 1
        assert state.number() == 0
    assert state.why is None and why_not(thing.step) is None


@dataclass
class Progress:
    rate: float = 0.1
    step: int = 0


def test_the_fields_of_a_dataclass_make_a_state_where_two_of_it_may_be_compared():
    one, other = Progress(), Progress()
    plain, comparing = PythonState(lambda x: x * one.rate), PythonState(lambda x: x * (one == other))
    assert plain.number() == comparing.number() == 0
    one.step += 1
    assert (plain.number(), comparing.number()) == (0, 1)
    one.rate = 0.2
    assert plain.number() == 1


FACTORS = {"all": 1.0}


class Gain:
    def __init__(self, rate):
        self.rate = rate * FACTORS["all"]

    def by_type(self):
        return type(self)(self.rate)

    def by_class(self):
        return self.__class__(self.rate)

    @classmethod
    def of(cls, rate):
        return cls(rate)


GAIN = Gain(0.1)


@pytest.mark.parametrize(
    "read",
    [lambda: GAIN.by_type(), lambda: GAIN.by_class(), lambda: GAIN.of(0.1), lambda: type(GAIN)(0.1)],
    ids=["type", "class", "class method", "global"],
)
def test_what_a_class_reads_to_make_an_object_makes_a_state_where_code_does_not_name_the_class(monkeypatch, read):
    state = PythonState(lambda x: x * read().rate)
    assert state.number() == 0
    monkeypatch.setitem(FACTORS, "all", 2.0)
    assert state.number() == 1


class Scaled(property):
    def __get__(self, thing, owner=None):
        return super().__get__(thing, owner) * FACTORS["all"]


class Scaling(functools.partial):
    def __call__(self, *args):
        return super().__call__(*args) * FACTORS["all"]


class Rated(enum.Enum):
    ONE = 1

    @types.DynamicClassAttribute
    def rate(self):
        return FACTORS["all"]


class OfProperties:
    @Scaled
    def rate(self):
        return 0.1


RATED, SCALING = OfProperties(), Scaling(operator.mul, 0.1)


@pytest.mark.parametrize(
    "read", [lambda: RATED.rate, lambda: SCALING(0.1), lambda: Rated.ONE.rate], ids=["property", "partial", "enum"]
)
def test_what_the_users_own_kind_of_property_or_partial_reads_makes_a_state(monkeypatch, read):
    state = PythonState(lambda x: x * read())
    assert state.number() == 0
    monkeypatch.setitem(FACTORS, "all", 2.0)
    assert state.number() == 1


class Settable:
    def __init__(self):
        self._rate = 0.1

    @property
    def rate(self):
        return self._rate

    @rate.setter
    def rate(self, rate):
        self._rate = rate * FACTORS["all"]

    @rate.deleter
    def rate(self):
        self._rate = FACTORS["all"]


def set_anew():
    made = Settable()
    made.rate = 0.1
    return made.rate


def deleted_anew():
    made = Settable()
    del made.rate
    return made.rate


SETTABLE = Settable()


@pytest.mark.parametrize("read", [set_anew, deleted_anew])
def test_what_setting_a_property_of_an_object_that_code_makes_reads_makes_a_state(monkeypatch, read):
    state = PythonState(lambda x: x * read())
    assert state.number() == 0
    monkeypatch.setitem(FACTORS, "all", 2.0)
    assert (state.number(), state.why) == (1, None)


def test_what_setting_a_property_reads_makes_no_state_where_code_only_reads_it(monkeypatch):
    state = PythonState(lambda x: x * SETTABLE.rate)
    assert state.number() == 0
    monkeypatch.setitem(FACTORS, "all", 2.0)
    assert state.number() == 0


class CountingModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense, self.epoch, self.pace, self.past = keras.layers.Dense(1), 0, 1.0, {"losses": []}

    def call(self, x):
        return self.dense(x) * self.pace


class CountingModule(tf.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.epoch, self.pace, self.best = tf.Variable(1.0), 0, 1.0, None

    def __call__(self, x):
        return self.weight * x * self.pace


@pytest.mark.parametrize("kind", [CountingModel, CountingModule])
def test_a_count_that_no_code_of_the_step_reads_makes_no_state_of_a_model(kind):
    model = kind()
    model(tf.ones((2, 3)))
    state = PythonState(lambda x: tf.reduce_sum(model(x)))
    for model.epoch in range(MOST_STATES + 2):
        assert (state.number(), state.why) == (0, None)
    model.pace = 2.0
    assert state.number() == 1
    if kind is CountingModel:  # Keras reads it
        model.dense.trainable = False
        assert state.number() == 2


def test_what_a_program_notes_in_lists_of_a_keras_model_makes_no_state():
    model = CountingModel()
    model(tf.ones((2, 3)))
    state = PythonState(lambda x: tf.reduce_sum(model(x)))
    for loss in range(MOST_STATES + 2):
        model.past["losses"].append(float(loss))
        assert (state.number(), state.why) == (0, None)
    with pytest.raises(ValueError, match="already built"):
        model.past["losses"].append(keras.layers.Dense(1))


def test_a_variable_in_the_place_of_a_count_of_a_module_makes_a_state():
    module = CountingModule()
    state = PythonState(lambda x: tf.add_n([tf.reduce_sum(x * one) for one in module.trainable_variables]))
    assert state.number() == 0
    module.best = 0.5
    assert state.number() == 0
    module.best = tf.Variable(2.0)
    assert (state.number(), state.why) == (1, None)


def test_attributes_that_keras_reads_of_a_layer_are_known():
    read = {"name", "trainable", "built", "_dtype_policy", "use_bias", "rate", "axis", "momentum", "seed_generator"}
    assert all(is_read_by_libraries(keras.layers.Dense, name) for name in read)
    assert not is_read_by_libraries(CountingModel, "epoch_of_mine") and is_read_by_libraries(list, "epoch_of_mine")


def test_a_weak_reference_is_read_where_its_object_is_held_otherwise():
    teacher = Gain(0.1)
    reference = weakref.ref(teacher)
    state = PythonState(lambda x: x if reference() is None else x * reference().rate)
    state.number()
    assert state.why == "it reads `reference`, a weak reference, whose object Placer would keep alive"
    del teacher
    assert reference() is None
    held = [Gain(0.1)]
    reference = weakref.ref(held[0])
    state = PythonState(lambda x: x * len(held) * (reference().rate if reference() else 1.0))
    assert state.number() == 0 and state.why is None
    held[0].rate = 0.2
    assert state.number() == 1


def test_what_a_program_puts_into_a_class_of_a_library_makes_a_state(monkeypatch):
    layer, scales, real = keras.layers.Dense(1), [1.0], keras.layers.Dense.call
    monkeypatch.setattr(keras.layers.Dense, "call", lambda self, x: real(self, x) * scales[0])
    monkeypatch.setattr(keras.layers.Dense, "get_config", lambda self: print("no part of a step"))
    state = PythonState(lambda x: layer(x))
    assert state.number() == 0
    scales[0] = 2.0
    assert state.number() == 1 and why_not(lambda x: layer(x)) is None
    monkeypatch.setattr(keras.layers.Dense, "call", lambda self, x: print("call") or real(self, x))
    assert "uses `print`" in why_not(lambda x: layer(x))


def test_a_rate_of_an_optimizer_of_tensorflow_1_makes_a_state():
    optimizer = tf.compat.v1.train.AdamOptimizer(0.1)
    state = PythonState(lambda x: optimizer.minimize(lambda: WEIGHT * x))
    assert state.number() == 0
    optimizer._lr = 0.01
    assert state.number() == 1


SAME = operator.eq


@pytest.mark.parametrize(
    "compare",
    [
        lambda one, other: one.__eq__(other), lambda one, other: SAME(one, other),
        lambda one, other: functools.partial(operator.eq, one)(other), lambda one, other: one in [other],
        lambda one, other: len(list(itertools.groupby([one, other]))),
    ],
    ids=["method", "name", "partial", "in", "groupby"],
)  # fmt: skip
def test_a_comparison_of_dataclasses_is_seen_however_it_is_written(compare):
    one, other = Progress(), Progress()
    state = PythonState(lambda x: x * compare(one, other))
    assert state.number() == 0
    one.step += 1
    assert state.number() == 1


OTHER_LOSSES = types.SimpleNamespace(losses=1.0)


def of_a_library_or_not(x, thing=OTHER_LOSSES):
    found = keras
    for _ in range(2):
        rate = found.losses
        found = thing
    return x * rate


def of_one_of_several(x, first=False, second=True, thing=OTHER_LOSSES):
    return x * (keras if first else thing if second else keras).losses


@pytest.mark.parametrize("step", [of_a_library_or_not, of_one_of_several])
def test_a_name_that_is_read_of_a_library_or_of_something_else_makes_a_state(monkeypatch, step):
    state = PythonState(step)
    assert state.number() == 0
    monkeypatch.setattr(OTHER_LOSSES, "losses", 2.0)
    assert state.number() == 1


class Bank:
    def get(self):
        return types.SimpleNamespace(rate=1.0)


BANK = Bank()


def sets_what_it_gets(x):
    loss, given = keras.losses.get("mse"), BANK.get()
    loss.reduction = "none"
    given.rate = x
    return x


def test_what_functions_called_get_make_may_be_changed():
    assert why_not(sets_what_it_gets) is None


def test_an_equal_value_that_is_another_object_is_the_same_state():
    rates = [0.1 + 0.2]
    state = PythonState(closure(rates))
    assert state.number() == 0
    rates[0] = sum([0.1, 0.2])
    assert state.number() == 0
    holder = {"lr": [1, 2]}
    state = PythonState(closure(holder))
    assert state.number() == 0
    holder["lr"] = [1, 2]
    assert state.number() == 0
    holder["lr"].append(3)
    assert state.number() == 1


def test_what_changes_outside_the_step_is_noticed(monkeypatch):
    rates, slotted, holder = Rates(), Slotted(), {"lr": 0.1}
    layer = keras.layers.Dense(1)
    layer.build((1, 1))

    def step(x, *, power=2):
        return layer(helper(x)) * rates.of(x) * slotted.rate * CONFIG.rate * holder["lr"] * Rates.first * power

    state = PythonState(step)
    seen = [state.number()]

    def noticed():
        seen.append(state.number())
        assert state.why is None
        return seen[-1] == len(seen) - 1

    rates.rate = 0.2
    assert noticed()
    slotted.rate = 0.2
    assert noticed()
    holder["lr"] = 0.2
    assert noticed()
    layer.trainable = False
    assert noticed()
    monkeypatch.setattr(CONFIG, "rate", 0.2)
    assert noticed()
    monkeypatch.setattr(Rates, "first", 0.2)
    assert noticed()
    monkeypatch.setitem(helper.__globals__, "helper", lambda x: x)
    assert noticed()


class Sink:
    def __init__(self, sink):
        self.sink = sink

    def tell(self, x):
        self.sink(x)
        return x


FIRST, SECOND = Sink(len), Sink(print)
LIBRARIES, PURE = {"np": np, "random": random}, {"np": np}


def told(x, sink=print):
    sink("a step")
    return x


def of_sinks(sinks):
    def step(x):
        for sink in sinks:
            sink("a step")
        return x

    return step


def paced_by_a_file(folder):
    return lambda x: x * float((folder / "pace.txt").read_text())


@pytest.mark.parametrize(
    ("step", "word"),
    [
        (told, "uses `told's default"), (lambda x: told(x), "uses `told's default"), (of_sinks([print]), "`sinks[0]`"),
        (of_sinks({logging.warning: 1}), "a key of sinks"), (of_sinks((functools.partial(print, "a"),)), "`sinks[0]`"),
        (lambda x: x * CLOCKS["now"](), "`CLOCKS['now']`"), (paced_by_a_file(HOME), "uses `read_text` of a file"),
        (lambda x: FIRST.tell(x) + SECOND.tell(x), "`SECOND.sink`"),
        (lambda x: x * LIBRARIES["random"].random(), "`LIBRARIES['random']`"),
    ],
)  # fmt: skip
def test_functions_that_act_are_found_by_any_name(step, word):
    assert word in why_not(step)


@functools.singledispatch
def scaled(kind, x):
    return x


@scaled.register
def _(kind: int, x):
    return x * CONFIG.rate


@scaled.register
def _(kind: float, x):
    return x * FLAGS["scale"]


class Scaled:
    @functools.singledispatchmethod
    def of(self, kind, x):
        return x

    @of.register
    def _(self, kind: int, x):
        return x * FLAGS["scale"]


SCALED = Scaled()


@pytest.mark.parametrize("step", [lambda x: scaled(1.0, x), lambda x: SCALED.of(1, x)], ids=["function", "method"])
def test_registered_implementations_are_looked_into(step, monkeypatch):
    monkeypatch.setitem(FLAGS, "scale", 0.1)
    state = PythonState(step)
    assert [state.number(), state.number(), state.why] == [0, 0, None]
    FLAGS["scale"] = 0.2
    assert state.number() == 1 and state.why is None


class Counting:
    """A decorator of methods that is a class."""

    def __init__(self, function):
        self.function = function

    def __get__(self, thing, owner=None):
        return functools.partial(self.function, thing, FLAGS["scale"])


class Called:
    __pace__ = 0.1

    @Counting
    def __call__(self, scale, x):
        return x * scale

    def paced(self, x):
        return x * self.__pace__


CALLED = Called()
PARTIAL = functools.partial(CALLED.paced)
PARTIAL.pace = 0.1


class Cell(keras.layers.Layer):
    def get_initial_state(self, batch_size=None):
        return FLAGS["scale"]


CELL = Cell()


@pytest.mark.parametrize("step", [lambda x: CALLED(x), lambda x: CELL(x)], ids=["decorated", "cell"])
def test_special_methods_are_looked_into(step, monkeypatch):
    monkeypatch.setitem(FLAGS, "scale", 0.1)
    state = PythonState(step)
    assert [state.number(), state.number(), state.why] == [0, 0, None]
    FLAGS["scale"] = 0.2
    assert state.number() == 1 and state.why is None


def test_attributes_of_partials_and_special_ones_are_compared(monkeypatch):
    state = PythonState(lambda x: x * PARTIAL.pace + CALLED.paced(x))
    assert [state.number(), state.number(), state.why] == [0, 0, None]
    monkeypatch.setattr(PARTIAL, "pace", 0.2)
    assert state.number() == 1
    monkeypatch.setattr(Called, "__pace__", 0.2)
    assert state.number() == 2 and state.why is None


class Named:
    def __set_name__(self, owner, name):
        self.key = f"_{name}"

    def __get__(self, thing, owner=None):
        return vars(thing)[self.key]


class Checked:
    rate = Named()

    def __init__(self):
        self._rate = 0.1


CHECKED = Checked()


def test_what_descriptors_do_when_a_class_is_made_is_no_effect_of_a_step():
    assert why_not(lambda x: x * CHECKED.rate) is None


class Kept:
    def __init__(self, log):
        self.log = log

    def of(self, x):
        if self.log is not None:
            self.log.append(x)
        return x


class KeptInSlot(Kept):
    __slots__ = ("log",)


kept, KEEPS = Kept([]), [Kept(None), Kept([])]
SLOTS = [KeptInSlot(None), KeptInSlot([])]


@pytest.mark.parametrize("step", [
    lambda x: kept.of(x) if isinstance(kept, Kept) else x, lambda x: KEEPS[0].of(x) + KEEPS[1].of(x),
    lambda x: SLOTS[0].of(x) + SLOTS[1].of(x),
])  # fmt: skip
def test_methods_are_looked_through_for_each_object_that_has_other_things(step):
    assert "changes `self.log.append`" in why_not(step)


def test_what_a_program_puts_in_the_place_of_what_python_and_libraries_have_makes_a_state(monkeypatch):
    monkeypatch.setattr(builtins, "gain", 1.0, raising=False)
    monkeypatch.setattr(sys, "argv", ["train.py", "1"])
    state = PythonState(lambda x: tf.nn.relu(x) * float(sys.argv[1]) * gain)  # noqa: F821
    assert state.number() == state.number() == 0
    sys.argv[1] = "2"
    assert state.number() == 1
    monkeypatch.setattr(tf.nn, "relu", tf.nn.gelu)
    assert state.number() == 2
    monkeypatch.setattr(builtins, "gain", 2.0)
    assert state.number() == 3 and state.why is None


class Telling(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.tell, self.home = print, HOME


TELLING = Telling()


def test_what_is_held_and_not_called_is_no_effect():
    assert why_not(lambda x: TELLING(x)) is None
    assert why_not(lambda x, batch: batch["close"] - batch["open"] + len(TELLING.home.name)) is None
    assert "tell" in why_not(lambda x: TELLING.tell(x))


def test_a_function_that_acts_may_be_an_argument():
    assert "uses `log`" in why_not(lambda x, log: log(x), (("log", print),))
    assert why_not(lambda x: PURE["np"].square(x)) is None
    assert why_not(of_sinks([math.sqrt, np.square, tf.square, len, Rates().of])) is None


class Pair(typing.NamedTuple):
    first: float
    second: float = 2.0

    @property
    def rate(self):
        return self.first * FLAGS["scale"]

    def counted(self):
        FLAGS["scale"] += 1
        return self.first


class Kinds(frozenset):
    def rate(self):
        return len(self) * FLAGS["scale"]

    def counted(self):
        FLAGS["scale"] += 1


class Strict:
    def __setattr__(self, name, value):
        FLAGS["scale"] += 1
        super().__setattr__(name, value)


class Masked(keras.layers.Layer):
    def compute_mask(self, inputs, mask=None):
        FLAGS["scale"] += 1


@pytest.mark.parametrize("rate", [Pair(1.0), Kinds("ab")], ids=["named tuple", "set"])
def test_methods_of_named_tuples_and_sets_are_looked_into(rate, monkeypatch):
    monkeypatch.setitem(FLAGS, "scale", 0.1)
    state = PythonState((lambda x: x * rate.rate) if isinstance(rate, Pair) else lambda x: x * rate.rate())
    assert [state.number(), state.number(), state.why] == [0, 0, None]
    FLAGS["scale"] = 0.2
    assert state.number() == 1 and state.why is None
    assert "FLAGS[]" in why_not(lambda x: rate.counted())


MASKED = Masked()


@pytest.mark.parametrize("step", [lambda x: Strict(), lambda x: MASKED(x)])
def test_methods_that_are_called_without_being_named_are_looked_into(step):
    assert "FLAGS[]" in why_not(step)


def test_more_places_that_change(monkeypatch):
    state = PythonState(helper)
    assert state.number() == 0
    monkeypatch.setitem(helper.__globals__, "RATE", 0.2)
    assert state.number() == 1
    state = PythonState(with_default)
    assert state.number() == 0
    monkeypatch.setitem(with_default.__kwdefaults__, "rate", 0.5)
    assert state.number() == 1
    rates = Rates()
    state = PythonState(functools.partial(lambda r, x: r.of(x), rates))
    assert state.number() == 0
    rates.rate = 0.3
    assert state.number() == 1
    array = np.ones(3)
    state = PythonState(lambda x: x * array)
    assert state.number() == 0
    array[1] = 2
    assert state.number() == 1
    chosen = {"a"}
    state = PythonState(lambda x: x * ("a" in chosen))
    assert state.number() == 0
    chosen.clear()
    assert state.number() == 1


def test_an_attribute_that_the_step_does_not_read_makes_no_state():
    rates = Rates()
    state = PythonState(rates.of)
    for count in range(2 * MOST_STATES):
        rates.unread = count
        assert state.number() == 0


def test_an_attribute_read_by_a_name_made_at_run_time_makes_a_state():
    rates = Rates()
    state = PythonState(lambda x, name="un": getattr(rates, name + "read") * x)
    assert state.number() == 0
    rates.unread = 1
    assert state.number() == 1


class Schedule(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.beta, self.unread = 0.1, 0


class UsersDict(collections.UserDict):
    def rate(self):
        return self["rate"]


def parsed(rate):
    parser = configparser.ConfigParser()
    parser.read_dict({"training": {"rate": rate}})
    return parser


def reads_beta(thing):
    return lambda x: x * thing.beta


def reads_rate(thing):
    return lambda x: x * thing.rate()


def reads_flag(thing):
    return lambda x: x * thing[0].rate


def reads_holder(thing):
    return lambda x: x * thing[1].value


def reads_item_of_rates(thing):
    return lambda x: x * thing.rates[0]


def bare(**values):
    module = tf.Module()
    vars(module).update(values)
    return module


def reads_training(thing):
    return lambda x: x * float(thing["training"]["rate"])


def reads_rate_item(thing):
    return lambda x: x * thing["rate"]


def reads_first(thing):
    return lambda x: x * thing[0]


HOLDERS = [
    (Schedule, reads_beta, lambda thing: setattr(thing, "beta", 0.2)),
    (Schedule, lambda thing: lambda x: thing.model(x), lambda thing: thing.set_model(keras.Sequential())),
    (lambda: collections.UserDict(rate=0.1), reads_rate_item, lambda thing: thing.update(rate=0.2)),
    (lambda: UsersDict(rate=0.1), reads_rate, lambda thing: thing.update(rate=0.2)),
    (lambda: collections.UserList([0.1]), reads_first, lambda thing: thing.__setitem__(0, 0.2)),
    (lambda: collections.ChainMap({}, {"rate": 0.1}), reads_rate_item, lambda thing: thing.update(rate=0.2)),
    (lambda: parsed("0.1"), reads_training, lambda thing: thing.read_dict({"training": {"rate": "0.2"}})),
    (lambda: parsed("0.1")["training"], reads_rate_item, lambda thing: thing.__setitem__("rate", "0.2")),
    (flagged, reads_flag, lambda thing: setattr(thing[0], "rate", 0.2)),
    (flagged, reads_holder, lambda thing: setattr(thing[0], "rate", 0.2)),
    (lambda: bare(beta=0.1), reads_beta, lambda thing: setattr(thing, "beta", 0.2)),
    (lambda: bare(rates=[0.1]), reads_item_of_rates, lambda thing: thing.rates.__setitem__(0, 0.2)),
]  # fmt: skip


@pytest.mark.parametrize(("make", "read", "change"), HOLDERS)
def test_what_a_holder_keeps_in_attributes_that_nobody_names_makes_a_state(make, read, change):
    thing = make()
    state = PythonState(read(thing))
    assert state.number() == state.number() == 0
    change(thing)
    assert state.number() == 1 and state.why is None


class Meta(type):
    @property
    def rate(cls):
        return cls.first

    def __getitem__(cls, name):
        return getattr(cls, name)


def classed():
    return Meta("Hyper", (), {"first": 0.1, "__module__": __name__})


def answering_module():
    module = types.ModuleType("users_config")
    exec("import types\n_held = types.SimpleNamespace(beta=0.1)", vars(module))
    exec("def __getattr__(name):\n    return getattr(_held, name)", vars(module))
    return module


class Module(types.ModuleType):
    @property
    def beta(self):
        return self._beta


def module_of_a_class():
    module = Module("users_config")
    module._beta = 0.1
    return module


def cached_of(size, make):
    cached = functools.lru_cache(size)(lambda: make(rate=0.1))
    cached()
    return cached


RATE_OF, OF, FIRST_OF = operator.attrgetter("child.rate"), operator.methodcaller("of", 2.0), getattr


def reads_by_getter(thing):
    return lambda x: x * RATE_OF(thing)


def calls_by_getter(thing):
    return lambda x: x * OF(thing)


def reads_by_another_name(thing):
    return lambda x, name="fir": x * FIRST_OF(thing, name + "st")


def reads_by_partial(thing):
    read = functools.partial(getattr, thing, "rate")
    return lambda x: x * read()


def reads_by_open_partial(thing):
    read = functools.partial(getattr, thing)
    return lambda x, name="ra": x * read(name + "te")


def decorated_by(held):
    def scaled(wrapped, instance, args, kwargs):
        return held.rate * wrapped(*args, **kwargs)

    scaled.held = held
    return wrapt.FunctionWrapper(lambda x: x, scaled)


def calls_it(thing):
    return lambda x: thing(x)


def calls_for_rate(thing):
    return lambda x: x * thing().rate


def calls_for_item(thing):
    return lambda x: x * thing()["rate"]


def itemized():
    class Config:
        values: typing.ClassVar = {"a": 0.1}

        def __class_getitem__(cls, name):
            return cls.values[name]

    return Config


class Doubled(Rates):
    def of(self, x):
        return x * 2


GAINS, SHOWN = {"0.1": 1.0, "0.2": 2.0}, "{0.rate}"


def by_its_text(thing):
    return lambda x: x * GAINS["{.rate}".format(thing)]  # noqa: UP032


def by_a_text(thing):
    return lambda x: x * GAINS[SHOWN.format(thing)]


def trade(thing):
    """One attribute for another."""
    del thing.warmup
    thing.pace = 2.0


UNSHOWN = [
    (itemized, lambda thing: lambda x: x * thing["a"], lambda thing: thing.values.update(a=0.2)),
    (classed, lambda thing: lambda x: x * thing.rate, lambda thing: setattr(thing, "first", 0.2)),
    (classed, lambda thing: lambda x, name="fir": x * thing[name + "st"], lambda thing: setattr(thing, "first", 0.2)),
    (answering_module, reads_beta, lambda thing: setattr(thing._held, "beta", 0.2)),
    (module_of_a_class, reads_beta, lambda thing: setattr(thing, "_beta", 0.2)),
    (lambda: types.SimpleNamespace(child=Rates()), reads_by_getter, lambda thing: setattr(thing.child, "rate", 0.2)),
    (Rates, calls_by_getter, lambda thing: setattr(thing, "rate", 0.2)),
    (Rates, reads_by_another_name, lambda thing: setattr(thing, "first", 0.2)),
    (Rates, reads_by_partial, lambda thing: setattr(thing, "rate", 0.2)),
    (Rates, reads_by_open_partial, lambda thing: setattr(thing, "rate", 0.2)),
    (lambda: decorated_by(Rates()), lambda thing: thing, lambda thing: setattr(thing._self_wrapper.held, "rate", 0.2)),
    (lambda: decorated_by(Rates()), calls_it, lambda thing: setattr(thing._self_wrapper.held, "rate", 0.2)),
    (lambda: decorated_by(Rates()), calls_it, lambda thing: setattr(thing, "__wrapped__", lambda x: x * 2)),
    (lambda: wrapt.ObjectProxy(Rates()), reads_by_another_name, lambda thing: setattr(thing, "first", 0.2)),
    (lambda: wrapt.ObjectProxy(Rates()), calls_by_getter, lambda thing: setattr(thing, "rate", 0.2)),
    (lambda: cached_of(None, types.SimpleNamespace), calls_for_rate, lambda thing: setattr(thing(), "rate", 0.2)),
    (lambda: cached_of(8, types.SimpleNamespace), calls_for_rate, lambda thing: setattr(thing(), "rate", 0.2)),
    (lambda: cached_of(1, dict), calls_for_item, lambda thing: thing().update(rate=0.2)),
    (Rates, lambda thing: lambda x: thing.of(x), lambda thing: setattr(thing, "__class__", Doubled)),
    (Rates, lambda thing: lambda x: thing.of(x), lambda thing: setattr(thing, "__dict__", {"rate": 0.2, "unread": 0})),
    (lambda: types.SimpleNamespace(warmup=1), lambda thing: lambda x: x * getattr(thing, "pace", 1.0), trade),
    (Rates, by_its_text, lambda thing: setattr(thing, "rate", 0.2)),
    (Rates, by_a_text, lambda thing: setattr(thing, "rate", 0.2)),
]  # fmt: skip


@pytest.mark.parametrize(("make", "read", "change"), UNSHOWN)
def test_what_no_code_of_the_step_names_makes_a_state(make, read, change):
    thing = make()
    step = read(thing)
    state = PythonState(step)
    assert why_not(step) is None and state.number() == state.number() == 0
    change(thing)
    assert state.number() == 1 and state.why is None


class Stage:
    def __init__(self, label="a"):
        self.label = label

    def __str__(self):
        return self.label

    __repr__ = __str__


class Shown(Stage):
    def __format__(self, spec):
        return self.label + spec


@dataclass(eq=False)  # whose `__eq__` would read all
class Settings:
    label: str = "a"
    count: int = 0


class ReflectingBase:
    def __init__(self, label="a"):
        self.label = label

    def __repr__(self):
        return str(vars(self))


class Reflecting(ReflectingBase):
    pass


class Other(ReflectingBase):
    pass


OTHER = Other()
GAINS = {"a": 1.0, "b": 2.0}


def gain_of(stage):
    return GAINS.get(str(stage), 1.0) * len(str(OTHER))


TEXTS = [
    lambda thing: lambda x: x * GAINS[str(thing)], lambda thing: lambda x: x * GAINS[f"{thing}"],
    lambda thing: lambda x: x * GAINS[f"{thing!r:>1}"], lambda thing: lambda x: x * GAINS["%s" % thing],  # noqa: UP031
    lambda thing: lambda x: x * GAINS["%s%s" % (thing, "")],  # noqa: UP031
    lambda thing: lambda x: x * GAINS["{}".format(thing)],  # noqa: UP032
    lambda thing: lambda x: x * GAINS[format(thing, "")], lambda thing: lambda x: x * GAINS[repr(thing)],
    lambda thing: lambda x: x * gain_of(thing), lambda thing: lambda x: x * GAINS[next(map(str, [thing]))],
    lambda thing: lambda x: x * GAINS[thing.__str__()], lambda thing: lambda x: tf.print([thing], *[thing]) or x,
    lambda thing: lambda x: x * len(str([thing])),
]  # fmt: skip


@pytest.mark.parametrize("make", [Stage, Shown, Reflecting])
@pytest.mark.parametrize("read", TEXTS)
def test_what_the_text_of_an_object_shows_makes_a_state(make, read):
    thing = make()
    state = PythonState(read(thing))
    assert state.number() == state.number() == 0
    thing.label = "b"
    assert state.number() == 1 and state.why is None


@pytest.mark.parametrize("read", [TEXTS[i] for i in (0, 1, 3, 5, 6, 7)])
def test_the_text_of_a_dataclass_that_is_known_to_be_made_makes_a_state(read):
    thing = Settings()
    state = PythonState(read(thing))
    assert state.number() == 0
    thing.count = 1
    assert state.number() == 1 and state.why is None


def test_what_the_text_of_another_object_would_show_makes_no_state():
    settings, reflecting, rates, stage = Settings(), Reflecting(), Rates(), Stage()

    def step(x):
        if not isinstance(x, (str, tf.Tensor)) and isinstance(x, str):
            raise ValueError(f"{x.shape} with {settings.label}")
        for i in range(int(rates.rate) % 3):
            x = x * len(f"layer_{i}") * len(reflecting.label) * (stage is None)
        return x

    state = PythonState(step)
    assert state.number() == 0 and why_not(step) is None
    settings.count = rates.unread = 1
    assert state.number() == 0


def importing_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "users_lazy", module_of("", RATE=0.1, OTHER=0.1))
    return sys.modules["users_lazy"], module_of(IMPORTS_NAMES)


def test_what_a_module_gives_of_one_that_it_imports_by_a_name_makes_a_state(monkeypatch):
    lazy, module = importing_module(monkeypatch)
    step = lambda x: x * module.RATE  # noqa: E731
    state = PythonState(step)
    assert why_not(step) is None and state.number() == state.number() == 0
    lazy.OTHER = 0.2
    assert state.number() == 0
    lazy.RATE = 0.2
    assert state.number() == 1 and state.why is None
    module.RATE = 0.1
    assert state.number() != 1


def test_a_module_that_imports_leaves_a_step_alone_where_any_of_its_names_may_be_read(monkeypatch):
    _, module = importing_module(monkeypatch)
    assert "import_module` in __getattr__" in why_not(lambda x: x * rate_of(module))


def test_the_remainder_of_numbers_shows_nothing():
    stage = Stage()

    def step(x, k=2):
        for n in range(4):
            x = x * (n % k) * (int(x) % n) * (stage is None)
        return x

    state = PythonState(step)
    assert state.number() == 0
    stage.label = "b"
    assert state.number() == 0


@pytest.mark.parametrize("size", [None, 8])
def test_a_cached_function_that_is_cleared_leaves_a_step_alone(size):
    cached = cached_of(size, types.SimpleNamespace)
    state = PythonState(calls_for_rate(cached))
    assert state.number() == 0 and state.why is None
    cached.cache_clear()
    state.number()
    assert "whose results functools.lru_cache keeps out of sight" in state.why and cached.cache_info().misses == 0
    assert "keeps out of sight" in why_not(lambda x: cached.cache_clear() or x)


def test_what_a_step_puts_into_the_result_of_a_cached_function_is_judged():
    history = cached_of(None, lambda rate: [rate])

    def step(x):
        history().append(x)
        return x

    state = PythonState(step)
    state.number()
    state.before()
    step(1.0)
    assert "`history()" in state.effect()


def test_a_dtype_policy_of_the_program_makes_a_state():
    state, before = PythonState(lambda x: tf.cast(x, keras.config.dtype_policy().compute_dtype)), keras.config.floatx()
    assert state.number() == 0
    try:
        keras.config.set_dtype_policy("mixed_bfloat16")
        assert state.number() == 1
    finally:
        keras.config.set_dtype_policy(before)
    assert state.number() == 0


@pytest.mark.parametrize("make", [lambda: multiprocessing.Value("d", 0.1), lambda: ctypes.c_double(0.1)])
def test_a_value_that_cannot_be_compared_is_named(make):
    thing = make()
    assert "cannot see into" in why_not(lambda x: x * thing.value)


class Steady(keras.callbacks.Callback):
    rate = 0.1

    def on_epoch_begin(self, epoch, logs=None):
        super().on_epoch_begin(epoch, logs)


def test_a_step_may_read_a_callback_that_keras_calls():
    steady = Steady()
    assert why_not(lambda x: x * steady.rate) is None


def test_what_a_step_does_not_read_of_a_callback_or_a_namespace_makes_no_state():
    callback, options = Schedule(), argparse.Namespace(rate=0.1, epoch=0)
    state = PythonState(lambda x: x * callback.beta * options.rate)
    assert state.number() == 0
    callback.unread = options.epoch = 1
    assert state.number() == 0
    options.rate = 0.2
    assert state.number() == 1


def test_another_model_of_the_same_kind_makes_a_state():
    def model():
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="ones")])

    thing = {"lr": model()}
    state = PythonState(closure(thing))
    assert state.number() == 0
    thing["lr"] = model()
    assert state.number() == 1


def test_too_many_states_say_what_changes_and_what_to_do():
    rates = [0.0]
    state = PythonState(closure(rates))
    for i in range(MOST_STATES):
        rates[0] = float(i)
        state.number()
    assert state.why is None
    rates[0] = 99.0
    state.number()
    assert "`thing[0]`" in state.why and "pass it as an argument" in state.why


def test_training_a_keras_model_and_looking_at_it_changes_no_state():
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dropout(0.1), keras.layers.BatchNormalization()]
    )
    model.compile(optimizer=keras.optimizers.Adam(), loss="mse", metrics=["mae"])
    x, y = tf.ones([4, 3]), tf.zeros([4, 2])

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = model.compute_loss(x=x, y=y, y_pred=model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    assert why_not(step) is None
    step(x, y)
    state = PythonState(step)
    assert state.number() == 0
    state.before()
    step(x, y)
    assert state.effect() is None
    model.evaluate(x, y, verbose=0)
    model.optimizer.learning_rate = 0.5
    tf.function(step).get_concrete_function(x, y)
    assert state.number() == 0
    model.optimizer.learning_rate = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    assert state.number() == 1
    model.layers[0].trainable = False
    assert state.number() == 2


@pytest.mark.parametrize(("times", "why"), [(1, None), (9, "RuntimeError: dictionary changed size")])
def test_what_another_thread_changes_while_it_is_read_is_read_once_more(monkeypatch, times, why):
    rates, failures = {"rate": 0.1}, [RuntimeError("dictionary changed size during iteration")] * times

    def interrupted(walk, found, label):
        if found is rates and failures:
            raise failures.pop()
        visit_dict(walk, found, label)

    state = PythonState(lambda x: x * rates["rate"])
    visits = [(kinds, interrupted if visit is visit_dict else visit) for kinds, visit in survey.VISITS]
    monkeypatch.setattr(survey, "VISITS", visits)
    assert state.number() == state.number() == 0
    assert state.why is None if why is None else why in state.why


def test_a_function_of_another_library_module_makes_a_state():
    table = {"f": math.exp}
    state = PythonState(lambda x: table["f"](1.0) * x)
    assert state.number() == 0
    table["f"] = cmath.exp
    assert state.number() == 1


class Day(datetime.date):
    pass


def test_an_object_of_the_users_that_never_changes_makes_a_state_where_it_is_replaced():
    table = {"day": Day(2026, 1, 1)}
    state = PythonState(lambda x: table["day"].year * x)
    assert state.number() == 0
    table["day"] = Day(2027, 1, 1)
    assert state.number() == 1


# Effects.


def test_a_call_that_changes_what_it_reads_is_judged():
    class Hidden:
        def __init__(self):
            self.count = 0

        def bump(self):
            self.__dict__["count"] += 1  # no attribute is stored here
            return self.count

    hidden = Hidden()

    def step(x):
        return x * hidden.bump()

    state = PythonState(step)
    state.number()
    state.before()
    step(1.0)
    why = state.effect()
    assert "hidden.count" in why


def test_a_call_that_draws_is_judged():
    state = PythonState(lambda x: x)
    for draw in (np.random.rand, random.random):
        state.before()
        assert state.effect() is None
        state.before()
        draw()
        assert "random numbers are drawn while it runs" in state.effect()


def test_what_a_first_call_builds_belongs_to_the_state_that_it_was_called_in():
    layers = []

    def step(x):
        if not layers:
            layers.extend([keras.layers.Dense(1)])
        return layers[0](x)

    state = PythonState(step)
    assert state.number() == 0
    step(tf.ones([1, 1]))
    state.built()
    assert state.number() == 0


def test_what_a_layer_of_the_user_reads_of_itself_makes_a_state():
    class Scaled(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.history = 1.0  # Keras has attributes of this name that do not matter

        def call(self, x):
            return x * self.history

    layer = Scaled()
    state = PythonState(lambda x: layer(x))
    assert state.number() == 0
    layer.history = 2.0
    assert state.number() == 1
