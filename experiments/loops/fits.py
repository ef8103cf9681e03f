"""Loops that Keras runs: `fit` with everything that is usually given to it."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from experiments.loops.data import CLASSES, FEATURES, batch, classifier, dataset, loss_of
from experiments.loops.run import Run

EPOCH, LATENT = 6, 3


class VAE(keras.Model):  # type: ignore[misc]
    """A variational autoencoder with a training step and metrics of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([keras.layers.Dense(16, "tanh"), keras.layers.Dense(2 * LATENT)])
        self.decoder = keras.Sequential([keras.layers.Dense(16, "tanh"), keras.layers.Dense(FEATURES)])
        self.seeds = keras.random.SeedGenerator(17)
        self.total, self.divergence = keras.metrics.Mean(name="total"), keras.metrics.Mean(name="divergence")

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        """The metrics, which Keras resets at the beginning of each epoch."""
        return [self.total, self.divergence]

    def call(self, x: Any) -> Any:
        """Return (x as decoded, mean, log of the variance)."""
        mean, log_var = tf.split(self.encoder(x), 2, axis=-1)
        z = mean + tf.exp(0.5 * log_var) * keras.random.normal(tf.shape(mean), seed=self.seeds)
        return self.decoder(z), mean, log_var

    def train_step(self, x: Any) -> dict[str, Any]:
        """One step on a batch of x."""
        with tf.GradientTape() as tape:
            decoded, mean, log_var = self(x, training=True)
            divergence = -0.5 * tf.reduce_mean(1 + log_var - tf.square(mean) - tf.exp(log_var))
            total = tf.reduce_mean(tf.square(x - decoded)) + 0.1 * divergence
        self.optimizer.apply(tape.gradient(total, self.trainable_weights), self.trainable_weights)
        self.total.update_state(total)
        self.divergence.update_state(divergence)
        return {"total": self.total.result(), "divergence": self.divergence.result()}


def vae(run: Run) -> None:
    """keras.Model with a train_step of its own, which draws from a seed generator."""
    model, data = VAE(), dataset().map(lambda x, _: x)
    model(batch(0)[0])
    model.compile(optimizer=keras.optimizers.Adam(0.02), jit_compile=False)
    model.fit(data, steps_per_epoch=EPOCH, epochs=run.epochs, callbacks=run.callbacks(batch(0)[0]), verbose=0)
    run.keep(model=model, optimizer=model.optimizer, metrics=[v for m in model.metrics for v in m.variables])


def two_outputs(run: Run) -> None:
    """Dict inputs and two outputs; validation, checkpoints, early stopping, and a rate that plateaus lower."""
    left, right = keras.Input((FEATURES,), name="left"), keras.Input((FEATURES,), name="right")
    towers = [keras.layers.Dense(12, activation="relu")(x) for x in (left, right)]
    both = keras.layers.BatchNormalization()(keras.layers.Concatenate()(towers))
    both = keras.layers.Dropout(0.2, seed=5)(both)
    kind, size = keras.layers.Dense(CLASSES, name="kind")(both), keras.layers.Dense(1, name="size")(both)
    model = keras.Model({"left": left, "right": right}, {"kind": kind, "size": size})
    model.compile(
        optimizer=keras.optimizers.Adam(0.02), loss={"kind": loss_of(), "size": "mse"},
        loss_weights={"kind": 1.0, "size": 0.5}, metrics={"kind": ["accuracy"]}, jit_compile=False,
    )  # fmt: skip

    def named(x: Any, y: Any) -> Any:
        return {"left": x, "right": tf.reverse(x, [1])}, {"kind": y, "size": tf.reduce_sum(x, 1, keepdims=True)}

    data, unseen = dataset().map(named), dataset(seed=6).map(named).take(2)
    best = run.folder / "best.weights.h5"
    callbacks = [
        *run.callbacks(named(*batch(0))),
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=1, factor=0.5, min_delta=0.2, min_lr=0.001),
        keras.callbacks.ModelCheckpoint(best, monitor="val_loss", save_best_only=True, save_weights_only=True),
        keras.callbacks.EarlyStopping(
            monitor="val_loss", patience=3 * run.patience, min_delta=0.5, restore_best_weights=True
        ),
    ]
    model.fit(
        data, steps_per_epoch=EPOCH, epochs=run.epochs, validation_data=unseen, callbacks=callbacks,
        verbose=0,
    )  # fmt: skip
    run.keep(model=model, optimizer=model.optimizer)
    run.note(**{f"weight {i}": value for i, value in enumerate(model.get_weights())})
    model.load_weights(best)
    run.note(**{f"best {i}": value for i, value in enumerate(model.get_weights())})


def steps_per_execution(run: Run) -> None:
    """Keras asks for four steps at a time."""
    model = classifier()
    model.compile(
        optimizer=keras.optimizers.Nadam(0.02), loss=loss_of(), metrics=["accuracy"], steps_per_execution=4,
        jit_compile=False,
    )  # fmt: skip
    model.fit(
        dataset(), steps_per_epoch=EPOCH, epochs=run.epochs, callbacks=run.callbacks(batch(0)), verbose=0,
        validation_data=dataset(seed=6).take(1),
    )  # fmt: skip
    run.keep(model=model, optimizer=model.optimizer)


def averages(run: Run) -> None:
    """The optimizer keeps averages of the weights, and overwrites them every few steps."""
    model = classifier()
    optimizer = keras.optimizers.Adam(0.02, use_ema=True, ema_momentum=0.8, ema_overwrite_frequency=5, clipnorm=1.0)
    model.compile(optimizer=optimizer, loss=loss_of(), jit_compile=False)
    model.fit(dataset(), steps_per_epoch=EPOCH, epochs=run.epochs, callbacks=run.callbacks(batch(0)), verbose=0)
    run.keep(model=model, optimizer=model.optimizer)
