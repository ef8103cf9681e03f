"""Progress on stderr: bars with an ETA on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import inf

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from experiments.jobs.profile import Advance
from experiments.jobs.search.finding import Progress, Trial
from experiments.report.console import literal_console
from placer.number_format import ms
from placer.result import Measured


class _Remaining(TimeRemainingColumn):
    """The remaining time by what was counted so far, or until the work's time is up if that is sooner."""

    def __init__(self, left_s: Callable[[], float]) -> None:
        super().__init__()
        self.left_s = left_s

    def render(self, task: Task) -> Text:
        """The time in hours, minutes and seconds."""
        counted_s = task.time_remaining
        remaining_s = min(inf if counted_s is None else counted_s, max(0.0, self.left_s()))
        text = "-:--:--" if remaining_s == inf else str(timedelta(seconds=int(remaining_s)))
        return Text("" if task.total is None else text, style="progress.remaining")


def rich_progress(console: Console, hidden: bool, left_s: Callable[[], float] = lambda: inf) -> RichProgress:
    """A bar with counts, elapsed time and remaining time. left_s: seconds until the work ends in any case."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("ETA"), _Remaining(left_s))  # fmt: skip
    return RichProgress(*columns, console=console, transient=True, disable=hidden)


class SearchBar(Progress):
    """A bar with ETA and best so far on a terminal, one line per improvement everywhere; all on stderr."""

    def __init__(self) -> None:
        self.console = literal_console(stderr=True)
        self.best_s = inf
        self.single_s = inf
        self.left_s: Callable[[], float] = lambda: inf
        self.bar = rich_progress(self.console, hidden=not self.console.is_terminal, left_s=lambda: self.left_s())
        self.task = self.bar.add_task("", total=None, visible=False)

    def phase(self, text: str) -> None:
        """Print what comes next."""
        self.console.print(text, style="dim")

    def limit(self, left_s: Callable[[], float]) -> None:
        """Show no more remaining time than `left_s()`."""
        self.left_s = left_s

    def begin(self, total: int) -> None:
        """Show the bar, or its new total."""
        self.bar.start()
        said = "measuring" if self.best_s == inf else f"best {self._best()}"
        self.bar.update(self.task, total=total, visible=True, description=said)

    def trial(self, trial: Trial, best: Trial | None) -> None:
        """Advance; print a line if the mapping is the best so far."""
        if best is not None and isinstance(best.result, Measured):
            if trial.searcher == "single" and trial.mapping.is_single and trial.measured:
                self.single_s = min(self.single_s, trial.measured.step_s)
            if best.result.step_s < self.best_s:
                self.best_s = best.result.step_s
                self.console.print(f"  {trial.searcher:8} {self._best()}")
        self.bar.update(self.task, advance=1, description=f"best {self._best()}")

    def turns(self, total: int) -> None:
        """Begin the bar anew."""
        self.bar.start()
        self.bar.reset(self.task, total=total, visible=True, description="stepping in turn")

    def turn(self) -> None:
        """Advance."""
        self.bar.update(self.task, advance=1)

    def end(self) -> None:
        """Remove the bar."""
        self.bar.stop()

    def _best(self) -> str:
        if self.single_s == inf:
            return ms(self.best_s, 1)
        return f"{ms(self.best_s, 1)} ({self.single_s / self.best_s:.2f}x the best single device)"


def bar(quiet: bool) -> Progress:
    """A SearchBar, or a silent Progress if `quiet`."""
    return Progress() if quiet else SearchBar()


@contextmanager
def progress_bar(total: int, quiet: bool) -> Iterator[Advance]:
    """A bar with ETA on a terminal, a line per network elsewhere; all on stderr."""
    console = literal_console(stderr=True)
    hidden = quiet or not console.is_terminal
    with rich_progress(console, hidden) as bar:
        task = bar.add_task("", total=total)
        done = 0

        def advance(text: str) -> None:
            nonlocal done
            bar.update(task, completed=done, description=text)
            if not quiet and hidden:
                console.print(f"{text} ({done + 1} of {total})", style="dim")
            done += 1

        yield advance


@contextmanager
def status(quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows on stderr what is being done."""
    with literal_console(stderr=True, quiet=quiet).status("reading") as shown:
        yield lambda text: shown.update(Text(text))  # a str would be read as markup
