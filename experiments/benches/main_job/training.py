"""One side of the comparison with TensorFlow alone: a network trained in this process, placed or untouched."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection

import numpy as np
import tensorflow as tf

import placer
from experiments import zoo
from experiments.benches.paired_trainings import Blocks, OverError, state_of


def serve(connection: Connection, model: str, mapping: str | None, workers: int) -> None:
    """Train until the other end asks for no more steps.

    mapping: the file of a mapping, by which the step is placed on `workers` workers; None = the untouched step, on all
    cores.
    """
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    training = zoo.load(model)
    alone = tf.function(training.step)
    placed = [placer.place(alone, mapping, devices=f"workers:{workers}")] if mapping is not None else []
    step = placed[0] if placed else alone
    blocks = Blocks(connection, lambda: state_of(placed))
    try:
        while True:
            blocks.gate()
            np.array(step(*training.example_inputs))  # fetched, as a loop does that prints its loss
    except OverError:
        return
