"""Tables of runs: what is read, and one line for everything that cannot be used."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from placer.errors import BadInputError
from surrogate.scaling.runs import Runs, read_runs

GOOD = "batch,activation,step_s\n8,relu,0.1\n16,tanh,0.2\n"


def written(tmp_path, text, name="runs.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_numbers_and_texts_are_told_apart(tmp_path):
    runs = read_runs(written(tmp_path, GOOD), ["step_s", "batch", "activation"])
    assert len(runs) == 2 and runs.is_text("activation") and not runs.is_text("batch")
    np.testing.assert_array_equal(runs.numbers("step_s"), [0.1, 0.2])
    taken = runs.take(np.array([1]))
    assert taken.columns["activation"] == ("tanh",) and taken.numbers("batch").tolist() == [16.0]


def test_a_text_that_python_would_read_as_a_number_is_a_text(tmp_path):
    runs = read_runs(written(tmp_path, "step_s,kernel\n0.1,3_3\n0.2,5_5\n"), ["step_s", "kernel"])
    assert runs.is_text("kernel") and runs.columns["kernel"] == ("3_3", "5_5")


def test_parquet_reads_like_csv(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    table = pyarrow.table({"batch": [8, 16], "activation": ["relu", "tanh"], "step_s": [0.1, 0.2]})
    parquet.write_table(table, tmp_path / "runs.parquet")
    names = ["batch", "activation", "step_s"]
    found, same = read_runs(tmp_path / "runs.parquet", names), read_runs(written(tmp_path, GOOD), names)
    for name in names:
        assert list(found.columns[name]) == list(same.columns[name])


def test_two_parquet_columns_of_one_name_are_refused_where_they_are_asked_for(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    table = pyarrow.table([[8, 16], [1, 2], [0.1, 0.2]], names=["batch", "batch", "step_s"])
    parquet.write_table(table, tmp_path / "runs.parquet")
    with pytest.raises(BadInputError, match="two columns are called 'batch'"):
        read_runs(tmp_path / "runs.parquet", ["batch", "step_s"])


def test_a_byte_order_mark_spaces_and_blank_lines_are_no_harm(tmp_path):
    runs = read_runs(written(tmp_path, "\ufeffbatch , step_s\n 8 ,0.1\n\n16,0.2\n\n"), ["batch", "step_s"])
    assert runs.numbers("batch").tolist() == [8.0, 16.0]


def test_columns_that_are_not_asked_for_may_hold_anything(tmp_path):
    path = written(tmp_path, "batch,note,step_s\n8,,0.1\n16,a 7,0.2\n")
    assert len(read_runs(path, ["batch", "step_s"])) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD.replace("16,", ","), "column 'batch' has no value in row 2; fill it in, or drop the row"),
        (GOOD.replace("16,", "NaN,"), "column 'batch' has no value in row 2"),
        (GOOD.replace("16,", "many,"), "holds numbers, but in row 2 the text 'many'"),
        (GOOD.replace("16,", "inf,"), "column 'batch' is not finite in row 2"),
        (GOOD.replace("16,tanh", "16"), "row 2 has 2 cells and the header 3"),
        (GOOD.replace("activation", "batch"), "two columns are called 'batch'"),
        (GOOD.replace("batch", "size"), "has no column 'batch'; it has size, activation, step_s"),
        ("batch,activation,step_s\n", "has no rows"),
        ("", "has no column 'batch'; it has none"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path, text, says):
    with pytest.raises(BadInputError) as refused:
        read_runs(written(tmp_path, text), ["batch", "activation", "step_s"])
    assert says in str(refused.value) and "\n" not in str(refused.value)
    assert "runs.csv" in str(refused.value)


@pytest.mark.parametrize("name", ["runs.csv", "runs.parquet", "runs.xlsx"])
def test_a_file_that_is_not_there_or_none_is_one_line(tmp_path, name):
    with pytest.raises(BadInputError, match=name):
        read_runs(tmp_path / name, ["batch"])
    (tmp_path / name).write_bytes(b"\x00\xff\xfe garbage \x00")
    with pytest.raises(BadInputError, match=name):
        read_runs(tmp_path / name, ["batch"])


def test_text_where_numbers_are_needed_is_refused():
    runs = Runs.of({"activation": ["relu", "tanh"]})
    with pytest.raises(BadInputError, match="column 'activation' holds text"):
        runs.numbers("activation")


@pytest.mark.parametrize("name", ["runs.csv", "runs.parquet"])
def test_of_a_large_table_rows_are_drawn_and_all_are_checked(tmp_path, name):
    count = 40_000
    cells = {"batch": [i + 1 for i in range(count)], "kind": ["ab"[i % 2] for i in range(count)]}
    path = tmp_path / name
    write(path, cells)
    runs = read_runs(path, ["batch", "kind"], most=500)
    batch = runs.numbers("batch")
    assert (len(runs), runs.drawn_from) == (500, count)
    assert len(set(batch)) == 500 and list(batch) == sorted(batch)
    assert [runs.row(i) for i in range(500)] == list(batch)  # the batch is the number of the row
    assert runs.columns["kind"] == tuple("ab"[int(b - 1) % 2] for b in batch)
    assert abs(batch.mean() / count - 0.5) < 0.1  # from all over the table
    assert list(read_runs(path, ["batch"], most=500).numbers("batch")) == list(batch)
    assert list(read_runs(path, ["batch"], most=500, seed=1).numbers("batch")) != list(batch)
    whole = read_runs(path, ["batch"], most=count)
    assert len(whole) == count and whole.drawn_from is None
    cells["batch"][31_234] = float("inf")
    write(path, cells)
    with pytest.raises(BadInputError, match="'batch' is not finite in row 31235"):
        read_runs(path, ["batch", "kind"], most=500)


def write(path, cells):
    if path.suffix == ".csv":
        rows = zip(*cells.values(), strict=True)
        lines = [",".join(cells), *(",".join(map(str, row)) for row in rows)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(cells), path)


@pytest.mark.slow
def test_a_large_table_is_not_held_in_memory(tmp_path):
    path = tmp_path / "runs.csv"
    write(path, {"batch": range(1, 100_001), "step_s": range(1, 100_001), "note": ["x" * 40] * 100_000})
    tracemalloc.start()
    try:
        read_runs(path, ["batch", "step_s"], most=100)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 2e6 < path.stat().st_size
