"""Random training steps that give operator models ops of many sizes, each among other ops as in a real step.

`sweep:N` is the N-th step: convolutional if N % 5 is 0, 1 or 2, attention over embeddings if it is 3, and dense layers
if it is 4. The steps have no other use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from experiments.zoo.catalogue import Builder
from experiments.zoo.training import TrainingStep
from placer.errors import BadInputError, short

if TYPE_CHECKING:
    import numpy as np

PREFIX = "sweep:"
MOST_FLOPS = 1.2e9  # of a forward pass, about: a step takes some tens to hundreds of milliseconds of a core
MOST_PARAMETERS = 4_000_000
ACTIVATIONS = ("relu", "relu6", "swish", "gelu", "sigmoid", "tanh", "elu", "hard_swish", "leaky_relu")
KERNELS = ((1, 1), (1, 1), (3, 3), (3, 3), (3, 3), (5, 5), (7, 7), (1, 3), (3, 1), (1, 7), (7, 1))
KINDS = 5


def find(name: str) -> Builder:
    """The builder of `sweep:N`, which has its own batch unless one is given. Raises BadInputError if N is no number."""
    number = name.removeprefix(PREFIX)
    if not (number.isascii() and number.isdigit() and len(number) < 7):
        raise BadInputError(f"{short(name)} is no random step; write {PREFIX}0, {PREFIX}1, ...")
    return lambda batch, seed: _built(int(number), batch)


def _built(number: int, batch: int | None) -> TrainingStep:
    import numpy as np

    rng = np.random.default_rng([number, 2024])
    kinds: tuple[Callable[[str, np.random.Generator, int | None], TrainingStep], ...]
    kinds = (_convolutional, _convolutional, _convolutional, _attention, _dense)
    return kinds[number % KINDS](f"{PREFIX}{number}", rng, batch)


def _convolutional(name: str, rng: np.random.Generator, batch: int | None) -> TrainingStep:
    """Blocks of a random kind after one another until the forward pass has MOST_FLOPS."""
    import keras

    from experiments.zoo import data
    from experiments.zoo.training import classifier

    side, examples = int(rng.integers(20, 113)), batch or _power(rng, 2, 5)
    image = keras.Input((side, side, 3), name="image")
    net = _Blocks(rng, examples)
    stem = int(rng.choice((3, 5, 7)))  # with 1, and a stride, a gradient of oneDNN's ends the process (TensorFlow 2.21)
    x = net.convolution(image, _width(rng, 16, 64), int(rng.integers(1, 3)), (stem, stem))
    while net.flops < MOST_FLOPS and net.parameters < MOST_PARAMETERS and net.made < 14 and x.shape[1] > 1:
        x = net.block(x)
    classes = int(rng.integers(10, 1001))
    joined = keras.layers.GlobalAveragePooling2D()(x) if rng.random() < 0.7 else keras.layers.Flatten()(x)
    model = keras.Model(image, keras.layers.Dense(classes)(joined))
    images, labels = data.images(rng, examples, side), data.labels(rng, classes, examples)
    return classifier(model, _optimizer(rng), images, labels, name)


class _Blocks:
    """Draws blocks, and counts what their convolutions compute."""

    def __init__(self, rng: np.random.Generator, batch: int) -> None:
        self.rng, self.batch = rng, batch
        self.flops, self.parameters, self.made = 0.0, 0, 0

    def block(self, x: Any) -> Any:
        """One more block."""
        kinds = (self._plain, self._plain, self._separable, self._pooled, self._residual, self._branches, self._gated)
        self.made += 1
        return kinds[int(self.rng.integers(len(kinds)))](x)

    def convolution(self, x: Any, filters: int, stride: int = 1, kernel: tuple[int, int] | None = None) -> Any:
        """A convolution, often with batch normalisation, often with an activation."""
        import keras

        height, width = kernel or KERNELS[int(self.rng.integers(len(KERNELS)))]
        weights = height * width * x.shape[-1] * filters
        self.flops += 2.0 * self.batch * (x.shape[1] // stride) * (x.shape[2] // stride) * weights
        self.parameters += weights
        normal = self.rng.random() < 0.6
        x = keras.layers.Conv2D(filters, (height, width), stride, padding="same", use_bias=not normal)(x)
        x = keras.layers.BatchNormalization()(x) if normal else x
        return keras.layers.Activation(_activation(self.rng))(x) if self.rng.random() < 0.8 else x

    def _plain(self, x: Any) -> Any:
        return self.convolution(x, _width(self.rng, 8, 384), int(self.rng.random() < 0.3) + 1)

    def _separable(self, x: Any) -> Any:
        import keras

        kernel, stride = int(self.rng.choice((3, 5))), int(self.rng.random() < 0.3) + 1
        x = keras.layers.DepthwiseConv2D(kernel, stride, padding="same", use_bias=False)(x)
        x = keras.layers.Activation(_activation(self.rng))(keras.layers.BatchNormalization()(x))
        return self.convolution(x, _width(self.rng, 16, 512), kernel=(1, 1))

    def _pooled(self, x: Any) -> Any:
        import keras

        pooled = keras.layers.MaxPooling2D if self.rng.random() < 0.6 else keras.layers.AveragePooling2D
        return pooled(int(self.rng.integers(2, 4)), int(self.rng.integers(1, 3)), padding="same")(x)

    def _residual(self, x: Any) -> Any:
        inner = self.convolution(x, _width(self.rng, 8, 256))
        return self.convolution(inner, x.shape[-1]) + x

    def _branches(self, x: Any) -> Any:
        import keras

        count = int(self.rng.integers(2, 5))
        return keras.layers.Concatenate()([self.convolution(x, _width(self.rng, 8, 128)) for _ in range(count)])

    def _gated(self, x: Any) -> Any:
        """Squeeze and excitation, Hu et al. 2018."""
        import keras

        squeezed = keras.layers.GlobalAveragePooling2D(keepdims=True)(x)
        inner = keras.layers.Conv2D(_width(self.rng, 8, 64), 1, activation="relu")(squeezed)
        return x * keras.layers.Conv2D(x.shape[-1], 1, activation="hard_sigmoid")(inner)


def _attention(name: str, rng: np.random.Generator, batch: int | None) -> TrainingStep:
    """An embedding, layers of self-attention and dense layers, and a word for each position."""
    import keras

    from experiments.zoo import data
    from experiments.zoo.training import classifier

    examples, length, words = batch or _power(rng, 1, 4), int(rng.integers(8, 97)), int(rng.integers(500, 6000))
    heads, size = _power(rng, 0, 3), int(rng.integers(2, 9)) * 8
    width = heads * size
    x = keras.layers.Embedding(words, width)(given := keras.Input((length,), dtype="int32", name="words"))
    for _ in range(int(rng.integers(1, 4))):
        x = keras.layers.LayerNormalization()(x + keras.layers.MultiHeadAttention(heads, size)(x, x))
        inner = keras.layers.Dense(int(rng.integers(1, 5)) * width, activation=_activation(rng))(x)
        x = keras.layers.LayerNormalization()(x + keras.layers.Dense(width)(inner))
    model = keras.Model(given, keras.layers.Dense(words)(x))
    given_ids, wanted_ids = (data.on_host(data.zipf(rng, words, examples, length)) for _ in range(2))
    return classifier(model, _optimizer(rng), given_ids, wanted_ids, name)


def _dense(name: str, rng: np.random.Generator, batch: int | None) -> TrainingStep:
    """Dense layers after one another, some normalised."""
    import keras

    from experiments.zoo import data
    from experiments.zoo.training import classifier

    examples, features = batch or _power(rng, 5, 10), _width(rng, 16, 1024)
    given = keras.Input((features,), name="features")
    x: Any = given
    for _ in range(int(rng.integers(2, 6))):
        width = min(_width(rng, 32, 2048), int(MOST_FLOPS / 6 / examples / x.shape[-1]) + 1)
        x = keras.layers.Dense(width, activation=_activation(rng))(x)
        x = keras.layers.LayerNormalization()(x) if rng.random() < 0.3 else x
        x = keras.layers.BatchNormalization()(x) if rng.random() < 0.3 else x
    classes = int(rng.integers(2, 1001))
    model = keras.Model(given, keras.layers.Dense(classes)(x))
    vectors, labels = data.vectors(rng, examples, features), data.labels(rng, classes, examples)
    return classifier(model, _optimizer(rng), vectors, labels, name)


def _optimizer(rng: np.random.Generator) -> Any:
    import keras

    optimizers = keras.optimizers
    drawn = int(rng.integers(4))
    return (optimizers.SGD(0.01), optimizers.SGD(0.01, momentum=0.9), optimizers.Adam(), optimizers.RMSprop())[drawn]


def _activation(rng: np.random.Generator) -> str:
    return ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))]


def _width(rng: np.random.Generator, least: int, most: int) -> int:
    """A log-uniform width, mostly a multiple of 8, as in real networks."""
    width = round(float(least * (most / least) ** rng.random()))
    return max(8, width // 8 * 8) if rng.random() < 0.8 else width


def _power(rng: np.random.Generator, least: int, most: int) -> int:
    """A power of two from 2**least to 2**most."""
    return int(2 ** rng.integers(least, most + 1))
