"""Twelve real networks, each with its own training step, and the door for a user's own.

| name            | network, source                        | input         | batch | optimizer     |
| --------------- | -------------------------------------- | ------------- | ----- | ------------- |
| `inception_v3`  | Inception-v3, Szegedy et al. 2016      | 96x96         | 8     | SGD, momentum |
| `resnet50`      | ResNet-50, He et al. 2016              | 64x64         | 8     | SGD, momentum |
| `nasnet_mobile` | NASNet-A mobile, Zoph et al. 2018      | 64x64         | 8     | SGD, momentum |
| `mobilenet_v3`  | MobileNetV3-Small, Howard et al. 2019  | 96x96         | 16    | Adam          |
| `vgg16`         | VGG-16, Simonyan & Zisserman 2015      | 32x32         | 8     | SGD, momentum |
| `alexnet`       | two towers, Krizhevsky et al. 2012     | 127x127       | 32    | SGD, momentum |
| `towers`        | four towers, after Ciresan et al. 2012 | 64x64         | 32    | SGD, momentum |
| `mnist_softmax` | one softmax layer, LeCun et al. 1998   | 784 pixels    | 128   | SGD           |
| `seq2seq_lstm`  | encoder-decoder, Sutskever et al. 2014 | 10 + 10 words | 16    | Adam          |
| `transformer`   | encoder, Vaswani et al. 2017           | 32 words      | 8     | Adam          |
| `moe`           | 8 experts, Shazeer et al. 2017         | 256 features  | 512   | Adam          |
| `two_tower`     | Covington et al. 2016, Yi et al. 2019  | ids           | 1024  | SGD, sparse   |

`wide_mlp` is none of these, but found like them: 1024 features, four layers of 2048 units, batch 128, Adam (at native
size: 4096 units, batch 1024).

`NAME@native` is the network as it was published, or as large as a GPU would be given it:

| name            | native input  | batch | else                                        |
| --------------- | ------------- | ----- | ------------------------------------------- |
| `inception_v3`  | 299x299       | 32    |                                             |
| `resnet50`      | 224x224       | 32    |                                             |
| `nasnet_mobile` | 224x224       | 32    |                                             |
| `mobilenet_v3`  | 224x224       | 64    |                                             |
| `vgg16`         | 224x224       | 32    |                                             |
| `alexnet`       | 227x227       | 128   |                                             |
| `towers`        | 64x64         | 64    | 96 filters, not 24                          |
| `mnist_softmax` | 784 pixels    | 128   | the very same                               |
| `seq2seq_lstm`  | 10 + 10 words | 128   | 1,024 units, not 256                        |
| `transformer`   | 128 words     | 32    | the base model: 512 wide, 8 heads, 6 layers |
| `moe`           | 512 features  | 4096  | 1,024 hidden units, not 512                 |
| `two_tower`     | ids           | 4096  | three tables of 256 MiB, not 51 MB          |

`two_tower@6144MiB` is that with three tables of so many mebibytes together.
Beside these, `keras:NAME` is any classifier of `keras.applications`, untrained, at the image size it was published for;
`keras:NAME@96` takes images of 96x96. `sweep:N` is a random step that shows operator models ops of many sizes.

All train on cross-entropy, without dropout, at sizes that take one core some tens to hundreds of milliseconds
a step (`mnist_softmax`: a fraction of one). Importing this package does not import TensorFlow; `load` does.
"""

from __future__ import annotations

from experiments.zoo import applications, catalogue, sweep, user
from experiments.zoo.catalogue import names
from experiments.zoo.training import TrainingStep
from placer.errors import BadInputError

__all__ = ["TrainingStep", "find", "load", "names"]

LARGEST_SEED = 2**32 - 1


def load(model: str, *, batch: int | None = None, seed: int = 0) -> TrainingStep:
    """The training step called `model`: a name of the zoo, `keras:NAME`, `sweep:N`, `file.py:function`, `module:NAME`.

    A user's function takes nothing, or `batch`, and returns `(step, example_inputs)` or a TrainingStep.
    batch: examples a step; None = the network's own, which suits one core.
    seed: seeds Python, NumPy and Keras; the same seed gives the same weights and example inputs.
    Raises BadInputError for an unknown name, file or function, and for a user's function that fails.
    """
    if batch is not None and batch < 1:
        raise BadInputError(f"batch is {batch}; give a number of examples >= 1.")
    if not 0 <= seed <= LARGEST_SEED:
        raise BadInputError(f"seed is {seed}; give a number from 0 to {LARGEST_SEED}.")
    builder = find(model)
    import keras

    keras.utils.set_random_seed(seed)
    return builder(batch, seed)


def find(model: str) -> catalogue.Builder:
    """What builds `model`; neither TensorFlow nor the user's code is imported yet. Raises BadInputError for a name."""
    if model.startswith(applications.PREFIX):
        return applications.find(model)
    if model.startswith(sweep.PREFIX):
        return sweep.find(model)
    return user.find(model) if ":" in model else catalogue.find(model)
