"""What is measured is measured by clocks that nobody sets: the wall clock stands only where a moment is noted."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WALL = re.compile(r"\btime\.time(_ns)?\b|\bdatetime\.(now|utcnow|today)\b|CLOCK_REALTIME|\btime\.(local|gm)time\b")
NOTED = {
    "placer/measure/store.py",  # when a row was written
    "placer/profile/traced_session.py", "placer/profile/trace_clock.py",  # to see that it was not set meanwhile
    "search/online/journal.py",  # when an entry was made
    "experiments/campaign/store.py",  # when a row was written
    "experiments/benches/bench.py", "experiments/soak.py",  # the date of a record, of a run
}  # fmt: skip


def test_the_wall_clock_is_read_where_a_moment_is_noted_and_nowhere_else() -> None:
    paths = [path for top in ("placer", "surrogate", "search", "experiments") for path in (ROOT / top).rglob("*.py")]
    found = {path.relative_to(ROOT).as_posix() for path in paths if WALL.search(path.read_text())}
    assert found == NOTED
