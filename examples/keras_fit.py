"""Keras: `fit` with a callback more, and all the others as ever.

    python examples/keras_fit.py --devices workers:2 --epochs 6

A network of two streams, MobileNetV3 each (after Simonyan & Zisserman 2014, who gave one the picture and the other the
movement in it), on random pictures. Placer needs one line, marked below.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import keras
import numpy as np

from placer.keras import AutoPlace

CLASSES = 5


def two_streams(side: int, alpha: float) -> keras.Model:
    inputs, ends = [], []
    for name in ("picture", "movement"):
        stream = keras.applications.MobileNetV3Small(
            (side, side, 3), alpha, minimalistic=True, include_top=False, weights=None, pooling="avg", name=name,
            include_preprocessing=False,
        )  # fmt: skip
        inputs.append(keras.Input((side, side, 3)))
        ends.append(stream(inputs[-1]))
    x = keras.layers.Dropout(0.2)(keras.layers.Concatenate()(ends))
    return keras.Model(inputs, keras.layers.Dense(CLASSES)(x), name="two_streams")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="workers:2", help="workers:N, host:port,..., or 'here'")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=100, help="in an epoch")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--side", type=int, default=64, help="pixels")
    parser.add_argument("--alpha", type=float, default=1.0, help="width of the streams")
    parser.add_argument("--budget", type=int, default=12, help="mappings measured at most")
    options = parser.parse_args()

    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    count = options.steps * options.batch
    few = min(count, 256)
    seen = rng.normal(size=(2, few, options.side, options.side, 3)).astype("float32")
    at = np.arange(count) % few
    x, y = [seen[0][at], seen[1][at]], rng.integers(CLASSES, size=few)[at]

    model = two_streams(options.side, options.alpha)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"], jit_compile=False)
    placing = AutoPlace(devices=None if options.devices == "here" else options.devices, budget=options.budget)
    with tempfile.TemporaryDirectory() as folder:
        best = Path(folder) / "best.keras"
        history = model.fit(
            x, y, batch_size=options.batch, epochs=options.epochs, validation_data=([part[:64] for part in x], y[:64]),
            callbacks=[
                placing,  # the line that Placer needs
                keras.callbacks.ModelCheckpoint(best, monitor="loss", save_best_only=True),
                keras.callbacks.EarlyStopping(monitor="loss", patience=3, restore_best_weights=True),
            ],
            verbose=2,
        )  # fmt: skip
        print(placing.report())
        loaded = keras.models.load_model(best).evaluate(x, y, batch_size=options.batch, verbose=0)[0]
        trained = model.evaluate(x, y, batch_size=options.batch, verbose=0)[0]
    print(f"{len(history.epoch)} epochs; loss {trained:.4f}, and {loaded:.4f} of the best checkpoint, loaded again.")


if __name__ == "__main__":
    main()
