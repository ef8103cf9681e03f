"""Text in tables."""

from experiments.report.text import FEW, markdown_table, split_idle


def test_a_cell_with_a_bar_or_a_line_break_ends_neither_cell_nor_row():
    assert markdown_table(["a", "b"], [["x|y", "1\n2"], ["done\\|so", ""]]) == [
        "| a | b |", "| --- | ---: |", "| x\\|y | 1 2 |", "| done\\|so |  |",
    ]  # fmt: skip


def test_a_table_of_devices_leaves_out_idle_ones_if_they_are_many():
    rows = [("gpu:0", 3), *((f"gpu:{d}", 0) for d in range(1, FEW + 1))]
    assert split_idle(rows, lambda row: not row[1]) == (rows, 0)
    assert split_idle([*rows, ("gpu:9", 0), ("gpu:10", 1)], lambda row: not row[1]) == (
        [("gpu:0", 3), ("gpu:10", 1)],
        FEW + 1,
    )
