"""A campaign on the terminal: its progress and its standing."""

from __future__ import annotations

from math import inf
from typing import Any

from rich.table import Table

from experiments.campaign.cells import Cell
from experiments.campaign.progress import CampaignProgress
from experiments.campaign.store import StoredTrial
from experiments.report.campaign.warm_starts import warm_lines
from experiments.report.console import literal_console
from experiments.report.progress import rich_progress
from experiments.report.text import MOST, printable
from experiments.report.text import cell as shown
from placer.number_format import short_ms

Facts = dict[str, Any]


class CampaignBar(CampaignProgress):
    """A bar on a terminal, with an ETA by this run's pace; a line per cell and improvement everywhere; all on stderr.

    several: whether several cells are under way at the same time; then each line names its cell.
    """

    def __init__(self, *, several: bool = False) -> None:
        self.several = several
        self.console = literal_console(stderr=True)
        self.bar = rich_progress(self.console, hidden=not self.console.is_terminal)
        self.done = self.total = 0
        self.best_s: dict[str, tuple[float, float]] = {}  # of each cell, and of its single devices
        self.measured: dict[str, int] = {}  # measurements of each cell

    def begin(self, done: int, total: int) -> None:
        """Show the bar."""
        self.done, self.total = done, total
        self.task = self.bar.add_task("", total=total, completed=done)
        self.bar.start()
        if done:
            self._say(f"{done} of {total} measurements are in the store; going on")

    def phase(self, text: str) -> None:
        """Print what comes next."""
        self._say(text, style="dim")

    def cell(self, cell: Cell, done: int, best_s: float, single_s: float) -> None:
        """Print which search begins."""
        self.best_s[cell.key], self.measured[cell.key] = (best_s, single_s), done
        begun = f", from measurement {done + 1} on" if done else ""
        self._say(f"{cell.key}{begun} ({self.done} of {self.total})")
        self.bar.update(self.task, description=self._described(cell))

    def trial(self, cell: Cell, trial: StoredTrial, best_s: float) -> None:
        """Advance, and print a line for an improvement."""
        self.done += 1
        self.measured[cell.key] += 1
        before_s, single_s = self.best_s[cell.key]
        if best_s < before_s:
            self.best_s[cell.key] = best_s, single_s
            self._say(f"  {self.measured[cell.key]:4}  {self._best(cell)}{self._name(cell)}")
        self.bar.update(self.task, advance=1, description=self._described(cell))

    def ended(self, cell: Cell, why: str, skipped: int) -> None:
        """Print why a cell ended before its last measurement."""
        self.total -= skipped
        self.bar.update(self.task, total=self.total)
        self._say(f"  ended: {why}{self._name(cell)}", style="dim")

    def final(self, cell: Cell, final: Facts) -> None:
        """Print what was measured side by side."""
        against = (
            "" if final["best_single_s"] is None else f", the best single device {short_ms(final['best_single_s'])}"
        )
        self._say(f"  side by side: {short_ms(final['best_s'])}{against}")

    def failed(self, what: str, reason: str) -> None:
        """Print a failure."""
        self._say(f"  failed: {what}: {reason}")

    def end(self) -> None:
        """Remove the bar."""
        self.bar.stop()

    def _say(self, text: str, style: str | None = None) -> None:
        self.console.print(shown(text, 2000), soft_wrap=True, style=style)

    def _name(self, cell: Cell) -> str:
        return f"  {cell.key}" if self.several else ""

    def _described(self, cell: Cell) -> str:
        """The text before the bar."""
        return "measured" if self.several else self._best(cell)

    def _best(self, cell: Cell) -> str:
        best_s, single_s = self.best_s[cell.key]
        if best_s == inf:
            return "nothing ran yet"
        against = f" ({single_s / best_s:.2f}x the best single device)" if single_s < inf and best_s > 0 else ""
        return f"best {short_ms(best_s)}{against}"


def progress(quiet: bool, *, several: bool = False) -> CampaignProgress:
    """A CampaignBar, or a silent CampaignProgress if `quiet`. several: as for CampaignBar."""
    return CampaignProgress() if quiet else CampaignBar(several=several)


def show_standing(facts: Facts) -> None:
    """Print a table of cells for each case, which fits into 80 columns, and how much is done."""
    console = literal_console()
    for case in dict.fromkeys(row["case"] for row in facts["cells"]):
        console.print(shown(case, 200), style="bold")
        console.print(_cells([row for row in facts["cells"] if row["case"] == case]))
    for line in standing_lines(facts):
        console.print(line, soft_wrap=True)


def _cells(rows: list[Facts]) -> Table:
    table = Table()
    for head in ("searcher", "seed", "state", "measured", "best", "x best single", "failures"):
        table.add_column(head, justify="left" if head in ("searcher", "state") else "right")
    for row in rows:
        count = str(row["done"]) if row["total"] is None else f"{row['done']}/{row['total']}"
        failures = str(row["failures"] or "")
        named = (shown(row["searcher"]), str(row["seed"]), row["state"])
        table.add_row(*named, count, best(row), ratio(row), failures)
    return table


def standing_lines(facts: Facts) -> list[str]:
    """Sentences that say what is done, and what failed last."""
    state = "complete" if facts["complete"] else "placer campaign run goes on"
    lines = [f"{facts['done']} of {facts['total']} measurements, {facts['failures']} failures: {state}."]
    if refused := sum(row["refused"] for row in facts["cells"]):
        lines.append(f"{refused} mappings were refused for lack of memory, as simulated; they are no measurements.")
    if any(row["kind"] == "predicted" for row in facts["cells"]):
        lines.append("Predicted cells are judged by the simulator: no gain is one before it is measured.")
    if any(row["kind"] == "measured" for row in facts["cells"]):
        lines.append(
            "Measured cells are judged by the clock: x best single is side by side, in the same minutes; with a ~, it "
            "is that of the races, until the cell has ended."
        )
    lines += warm_lines(facts)
    if (last := facts["last_failure"]) is not None:
        failed = f"The last failure: {last['cell'] or last['case']}: {last['reason']}: {last['detail']}"
        lines.append(printable(failed, MOST))
    return lines


def untouched_lines(rows: list[Facts]) -> list[str]:
    """A sentence if the untouched step, measured side by side, is faster than every mapping of a case."""
    ended = [row for row in rows if row["untouched_beside"]]
    if not ended or any(row["best_s"] <= row["untouched_s"] for row in ended):
        return []
    return ["The untouched step is faster than every mapping: TensorFlow's own placement is the best one here."]


def note_lines(rows: list[Facts]) -> list[str]:
    """The searchers' notes on their searches of a case, such as a change of stage."""
    return [f"{row['searcher']}, seed {row['seed']}: {note}" for row in rows for note in row["notes"]]


def best(row: Facts) -> str:
    """The best step time of a cell; "" if nothing ran."""
    return "" if row["best_s"] is None else short_ms(row["best_s"])


def ratio(row: Facts) -> str:
    """The ratio of a cell to the best single device, with a ~ if it is by races; "" if it is not known."""
    if row["ratio_to_best_single"] is None:
        return ""
    return f"{'~' if is_raced(row) else ''}{row['ratio_to_best_single']:.2f}"


def is_raced(row: Facts) -> bool:
    """Whether the figures of a cell are those of the races, not taken side by side."""
    return row["kind"] == "measured" and not row["side_by_side"]
