"""What fails in libraries is told in one line, and faults of ours are not."""

from __future__ import annotations

import errno
import shlex
import signal
import subprocess
import sys

import pytest
import tensorflow as tf

from experiments.cli.failures import in_one_line

GRAPH = """Graph execution error:

Detected at node assert_less/Assert/AssertGuard/Assert defined at (most recent call last):
  File "/home/me/model.py", line 8, in step

assertion failed: [rates fall] [Condition x < y did not hold element-wise:] [x (x:0) = ] [5] [y (y:0) = ] [3]
\t [[{{node assert_less/Assert/AssertGuard/Assert}}]] [Op:__inference_step_12]"""


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (tf.errors.InvalidArgumentError(None, None, GRAPH), "(InvalidArgumentError): assertion failed: [rates fall] "),
        (
            tf.errors.ResourceExhaustedError(
                None, None, "Graph execution error:\n\n2 root error(s) found.\n  (0) OOM x"
            ),
            "(ResourceExhaustedError): OOM x;",
        ),
        (tf.errors.AbortedError(None, None, "could not create a primitive"), "(AbortedError): could not create a prim"),
        (MemoryError("Unable to allocate 7.45 GiB"), "no more memory (MemoryError: Unable to allocate 7.45 GiB)"),
        (MemoryError(), "no more memory (MemoryError: it does not say why)"),
        (
            OSError(errno.ENOMEM, "Cannot allocate memory"),
            "no more memory (OSError: [Errno 12] Cannot allocate",
        ),
        (RuntimeError("can't start new thread"), "no more memory (RuntimeError: can't start new thread)"),
        (ImportError("x.so: failed to map segment from shared object"), "no more memory (ImportError: x.so: failed to"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), "set TMPDIR to one."),
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), None),
        (RuntimeError("a fault of ours"), None),
        (OSError(errno.EIO, "Input/output error"), None),
        (KeyError("a"), None),
    ],
)
def test_failures_in_one_line(error, says):
    line = in_one_line(error)
    assert (line is None) == (says is None)
    assert says is None or (says in line and "\n" not in line)


MODEL = """
import tensorflow as tf

def made():
    weight = tf.Variable(tf.ones([8, 8]))
    count = tf.Variable(0)

    @tf.function
    def step(x):
        tf.debugging.assert_less(count.assign_add(1), 2, message="the count has a bound")
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weight))
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    return step, (tf.ones([4, 8]),)
"""


@pytest.mark.nightly
def test_an_assertion_of_the_step_that_fails_is_one_line(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    command = [sys.executable, "-m", "placer", "search", f"{tmp_path / 'model.py'}:made", "--devices", "cpus:2"]
    done = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "assertion failed: [the count has a bound]" in line


def limited(kib: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = shlex.join([sys.executable, *words])
    limit = f"ulimit -c 0; ulimit -v {kib}; exec {command}"
    return subprocess.run(["bash", "-c", limit], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_process_without_memory_says_so_in_one_line():
    done = limited(2_000_000, "-m", "placer", "search", "alexnet", "--devices", "cpus:2", "--quiet")
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("placer: this process may take no more memory")


DIES = """
import os, signal, sys
from experiments.cli.last_words import last_words
with last_words():
    print("begun", flush=True)
    {death}
"""


@pytest.mark.parametrize(
    ("death", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("os.abort()", -signal.SIGABRT),
        ("os._exit(127)", 127),  # how the C library ends it without memory for a thread
    ],
)
def test_an_end_without_a_word_under_a_limit_is_told(death: str, code: int):
    done = limited(4_000_000, "-c", DIES.format(death=death))
    assert (done.returncode, done.stdout) == (code, "begun\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("placer: this process ended at once") and "ulimit -v is 4000000" in line


def test_an_end_in_order_under_a_limit_is_not():
    done = limited(4_000_000, "-c", DIES.format(death="sys.exit(3)"))
    assert (done.returncode, done.stdout, done.stderr) == (3, "begun\n", "")


def test_what_a_lack_of_memory_led_to_is_one():
    """As llvmlite says it."""
    with pytest.raises(OSError, match="Could not find") as raised:
        try:
            raise OSError("libllvmlite.so: failed to map segment from shared object")
        except OSError:
            raise OSError("Could not find/load shared object file")  # noqa: B904
    assert "no more memory (OSError: libllvmlite.so: failed to map segment" in (in_one_line(raised.value) or "")


def test_a_process_that_goes_on_as_another_program_leaves_no_false_word():
    """As `placer worker` does."""
    goes_on = "from experiments.cli.last_words import become_another; become_another(); os.execv('/bin/true', ['true'])"
    done = limited(4_000_000, "-c", DIES.format(death=goes_on))
    assert (done.returncode, done.stderr) == (0, "")
