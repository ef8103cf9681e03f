"""The zoo's networks train, come out the same for the same seed, and a user's slips are one line each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from experiments import zoo
from experiments.zoo.catalogue import NETWORKS
from placer.errors import BadInputError

PAGE = Path(__file__).parents[2] / "docs" / "networks.md"
NAMES = (
    "inception_v3 resnet50 nasnet_mobile mobilenet_v3 vgg16 alexnet towers mnist_softmax "
    "seq2seq_lstm transformer moe two_tower"
)
SMALL = {
    "mnist_softmax": 32, "towers": 2, "moe": 16, "two_tower": 32, "transformer": 2, "alexnet": 2, "wide_mlp": 32,
}  # fmt: skip
UNROLLED = {"seq2seq_lstm": 2}
LOOPS = {"While", "StatelessWhile", "If", "StatelessIf", "PartitionedCall", "StatefulPartitionedCall"}

# The published sizes (Keras's own tables), whatever the image: pooling comes before the last layer.
PARAMETERS = {"resnet50": 25_636_712, "mobilenet_v3": 2_554_968}
# A tower has 3*3*3*24+24 and 3*3*24*24+24; the last layer sees 4*24. Softmax: 784*10+10. The MLP: 1024 to 2048, three
# times 2048 to 2048, 2048 to 100.
OWN_PARAMETERS = {
    "mnist_softmax": 7850,
    "towers": 4 * (672 + 5208) + 970,
    "wide_mlp": 1025 * 2048 + 3 * 2049 * 2048 + 2049 * 100,
}

QUICK = ("mnist_softmax", "towers", "alexnet")


def quick_and_slow(names: Iterable[str]) -> list[Any]:
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def traced(step: zoo.TrainingStep):
    import tensorflow as tf

    return tf.function(step.step, autograph=False).get_concrete_function(*step.example_inputs)


def losses(step: zoo.TrainingStep, steps: int) -> list[float]:
    run = traced(step)
    return [float(run(*step.example_inputs)) for _ in range(steps)]


def test_the_page_of_networks_has_all_with_their_batches():
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    own = {row[0].strip(" `"): int(row[3]) for row in rows if len(row) == 5}
    native = {row[0].strip(" `"): int(row[2]) for row in rows if len(row) == 4}
    assert own == {name: network.batch for name, network in NETWORKS.items()}
    assert native == {name: network.native_batch for name, network in NETWORKS.items()}


def test_names_are_the_contracts_and_cost_no_tensorflow():
    code = "import sys; from experiments import zoo; print(*zoo.names()); sys.exit('tensorflow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == NAMES.split(), done.stderr
    assert done.returncode == 0, "importing experiments.zoo imported TensorFlow"


@pytest.mark.some(4)
@pytest.mark.parametrize("name", quick_and_slow(SMALL))
def test_a_few_steps_lower_the_loss(name: str):
    first, *_, last = losses(zoo.load(name, batch=SMALL[name]), 4)
    assert 0 < last < first < 20


@pytest.mark.some(3)
@pytest.mark.parametrize("name", quick_and_slow([*SMALL, *UNROLLED]))
def test_the_step_is_one_flat_graph_that_returns_a_float(name: str):
    concrete = traced(zoo.load(name, batch=2))
    assert not {op.type for op in concrete.graph.get_operations()} & LOOPS
    assert concrete.outputs[0].shape == () and concrete.outputs[0].dtype == "float32"


@pytest.mark.parametrize("name", quick_and_slow(PARAMETERS | OWN_PARAMETERS))
def test_the_network_has_its_published_size(name: str):
    assert zoo.load(name, batch=1).model.count_params() == (PARAMETERS | OWN_PARAMETERS)[name]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "name",
    ["towers", pytest.param("two_tower", marks=pytest.mark.slow), pytest.param("mobilenet_v3", marks=pytest.mark.slow)],
)
def test_the_same_seed_gives_the_same_step_even_in_the_same_process(name: str):
    import numpy as np

    one, two, other = (zoo.load(name, batch=2, seed=seed) for seed in (3, 3, 4))
    pairs = list(zip(one.model.get_weights(), two.model.get_weights(), strict=True))
    pairs += [(a.numpy(), b.numpy()) for a, b in zip(one.example_inputs, two.example_inputs, strict=True)]
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert not np.array_equal(one.example_inputs[0], other.example_inputs[0])


@pytest.mark.nightly
def test_op_names_do_not_depend_on_what_was_built_before():
    first, second = ([op.name for op in traced(zoo.load("mobilenet_v3", batch=1)).graph.get_operations()] for _ in "ab")
    assert first == second


def test_a_seed_repeats_its_losses():
    one, two = (losses(zoo.load("mnist_softmax", seed=5), 3) for _ in range(2))
    assert one == two


def test_batch_is_the_first_axis():
    assert [x.shape[0] for x in zoo.load("two_tower", batch=3).example_inputs] == [3, 3, 3, 3]


@pytest.mark.parametrize("number", [*(pytest.param(n, marks=pytest.mark.nightly) for n in (0, 3)), 9])
def test_a_random_step_is_the_same_each_time_and_trains(number: int):
    step, again = (zoo.load(f"sweep:{number}", batch=2) for _ in range(2))
    assert [v.shape for v in step.model.variables] == [v.shape for v in again.model.variables]
    assert losses(step, 2) == losses(again, 2)
    assert losses(step, 20)[-1] < losses(again, 1)[0]


def test_random_steps_are_of_several_kinds_and_sizes():
    shapes = {tuple(zoo.load(f"sweep:{number}").example_inputs[0].shape) for number in (3, 4, 8, 9)}
    assert len(shapes) == 4 and {len(shape) for shape in shapes} == {2}


def test_a_table_is_updated_row_by_row():
    """Only rows that were looked up change, and no op copies or writes the whole table."""
    step = zoo.load("two_tower", batch=4)
    table = step.model.get_layer("user_table").table
    before = table.numpy()
    concrete = traced(step)
    concrete(*step.example_inputs)
    changed = set((table.numpy() != before).any(axis=1).nonzero()[0])
    assert changed == set(step.example_inputs[0].numpy())
    sizes = [t.shape.num_elements() or 0 for op in concrete.graph.get_operations() for t in op.outputs]
    assert max(sizes) < before.size / 10


def test_alexnets_towers_hold_half_the_weights_each():
    model = zoo.load("alexnet", batch=1).model
    halves = [sum(w.numpy().size for n in model.layers if n.name.endswith(h) for w in n.weights) for h in "ab"]
    assert halves[0] == halves[1] == model.count_params() / 2


USER = """
import tensorflow as tf

def build(batch=2):
    weight = tf.Variable(1.0)
    def step(x):
        loss = tf.reduce_mean(x * weight)
        weight.assign_sub(0.1 * loss)
        return loss
    return step, (tf.ones([batch]),)

def arrays():
    return build()[0], [[1.0, 2.0]]

def no_pair():
    return build()[0]

def no_tuple():
    return build()[0], tf.ones([2])

def no_tensor():
    return build()[0], (object(),)

def broken():
    raise ValueError("first\\nsecond")

CONSTANT = 3

def elsewhere():
    import os
    os.chdir("/")
    return build()
"""


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(USER)
    return path


def test_a_users_function_is_a_step(user_file: Path):
    step = zoo.load(f"{user_file}:build", batch=5)
    assert step.name == "mine.build" and step.example_inputs[0].shape == (5,)
    assert losses(step, 2) == pytest.approx([1.0, 0.9])
    assert zoo.load(f"{user_file}:arrays").example_inputs[0].shape == (2,)


def test_a_users_function_that_goes_elsewhere_leaves_the_command_where_it_was(user_file: Path):
    """Its --out and --store may be relative."""
    here = Path.cwd()
    assert zoo.load(f"{user_file}:elsewhere").example_inputs[0].shape == (2,)
    assert Path.cwd() == here


def test_a_module_in_the_working_folder_is_found(user_file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(user_file.parent)
    monkeypatch.setattr(sys, "path", [*sys.path])
    user_file.rename(user_file.with_name("only_in_this_folder.py"))  # other tests have a module `mine`
    assert zoo.load("only_in_this_folder:build").example_inputs[0].shape == (2,)


TWO_IMPORTS = """
def make():
    from shape_of_mine import INPUT
    return step, (INPUT,)

def step(x):
    from no_init import sizes
    return sizes.SIZE
"""


def test_each_users_file_imports_the_modules_of_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name, size in (("a", 3), ("b", 4)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shape_of_mine.py").write_text(f"import tensorflow as tf\nINPUT = tf.zeros([{size}])\n")
        (tmp_path / name / "no_init").mkdir()
        (tmp_path / name / "no_init" / "sizes.py").write_text(f"SIZE = {size}\n")
        (tmp_path / name / "train.py").write_text(TWO_IMPORTS)
    for name, size in (("a", 3), ("b", 4), ("a", 3), ("a", 3)):
        found = zoo.load(f"{tmp_path / name}/train.py:make")
        assert found.example_inputs[0].shape == (size,)
        assert found.step(None) == size  # what is imported later, while the step is traced
        assert not any(str(tmp_path) in folder and folder != str(tmp_path / name) for folder in sys.path)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("bild", "has no function 'bild'; did you mean 'build'?"),
        ("CONSTANT", "'CONSTANT' is an int"),
        ("no_pair", "no_pair() returned a function; let it return (step, example_inputs)"),
        ("no_tuple", "as example_inputs; let it return"),
        ("no_tensor", "example input 0 is an object; give a tensor or an array."),
        ("broken", "failed with ValueError: first second (line 25 of mine.py); fix that"),
    ],
)
def test_a_users_slip_is_one_line(user_file: Path, function: str, says: str):
    with pytest.raises(BadInputError) as caught:
        zoo.load(f"{user_file}:{function}")
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("resnet5", "no network 'resnet5' in the zoo; did you mean 'resnet50'?"),
        ("", "no network '' in the zoo; it has inception_v3"),
        ("nowhere.py:build", "no Python file 'nowhere.py'"),
        ("tests:", "'tests:' names no step; write file.py:function or module:function."),
        ("sweep:one", "'sweep:one' is no random step; write sweep:0, sweep:1, ..."),
        ("no_such_module:build", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
def test_an_unknown_model_is_one_line(model: str, says: str):
    with pytest.raises(BadInputError) as caught:
        zoo.load(model)
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_does_not_import_is_one_line(tmp_path: Path):
    path = tmp_path / "half.py"
    path.write_text("x = 1\ndef build(:\n")
    with pytest.raises(BadInputError, match=r"half\.py failed with SyntaxError: .* \(half\.py, line 2\)"):
        zoo.load(f"{path}:build")


@pytest.mark.parametrize("options", [{"batch": 0}, {"seed": -1}, {"seed": 2**32}])
def test_numbers_out_of_range_are_refused(options: dict[str, int]):
    with pytest.raises(BadInputError, match="give a number"):
        zoo.load("mnist_softmax", **options)


def test_a_batch_for_a_function_that_takes_none_is_refused(user_file: Path):
    with pytest.raises(BadInputError, match="takes no batch"):
        zoo.load(f"{user_file}:broken", batch=4)
