"""What fails in libraries is told in one line, and faults of ours are not."""

from __future__ import annotations

import errno
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


@pytest.mark.slow
def test_an_assertion_of_the_step_that_fails_is_one_line(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    command = [sys.executable, "-m", "placer", "search", f"{tmp_path / 'model.py'}:made", "--devices", "cpus:2"]
    done = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert "assertion failed: [the count has a bound]" in line


@pytest.mark.slow
@pytest.mark.parametrize("kib", [2_000_000, 5_000_000])
def test_a_process_without_memory_says_so_in_one_line(kib):
    command = f"ulimit -v {kib}; exec {sys.executable} -m placer search alexnet --devices cpus:2 --quiet"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("placer: ")


def test_what_a_lack_of_memory_led_to_is_one():
    """As llvmlite says it."""
    with pytest.raises(OSError, match="Could not find") as raised:
        try:
            raise OSError("libllvmlite.so: failed to map segment from shared object")
        except OSError:
            raise OSError("Could not find/load shared object file")  # noqa: B904
    assert "no more memory (OSError: libllvmlite.so: failed to map segment" in (in_one_line(raised.value) or "")
