"""Text in tables."""

from experiments.report.text import markdown_table


def test_a_cell_with_a_bar_or_a_line_break_ends_neither_cell_nor_row():
    assert markdown_table(["a", "b"], [["x|y", "1\n2"], ["done\\|so", ""]]) == [
        "| a | b |", "| --- | ---: |", "| x\\|y | 1 2 |", "| done\\|so |  |",
    ]  # fmt: skip
