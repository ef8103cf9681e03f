"""The bench of a campaign's page: of a real one, made by the command and opened in a browser where there is one."""

from __future__ import annotations

import shutil

import pytest

from experiments.benches.campaign import report
from experiments.benches.campaign.page import page_lines

KILLS = {"kills": 3, "lost": 1, "duplicated": 2, "asks_identical": False, "store_ms": 0.5, "store_spread_ms": 0.1,
         "measurements": 9, "at_kills": 8}  # fmt: skip


@pytest.mark.parametrize(("usable_s", "said"), [(0.5, "| 0.50 s |"), (None, "| there was no browser |")])
def test_the_page_says_what_was_seen(usable_s: float | None, said: str) -> None:
    seen = {"report_s": 1.25, "report_bytes": 1_500_000, "report_usable_s": usable_s, "report_measurements": 500}
    text = "\n".join(page_lines({**KILLS, **seen}))
    assert "| 1.25 s |" in text and "| 1.50 MB |" in text and said in text and "500 measurements" in text


def test_the_campaign_has_500_measurements() -> None:
    assert report.ALL == 500


@pytest.mark.slow
@pytest.mark.browser
def test_a_page_is_made_and_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "MEASUREMENTS", 2)
    monkeypatch.setattr(report, "SEEDS", (0,))
    monkeypatch.setattr(report, "REPEATS", 1)
    facts = report.report_facts()
    assert facts["report_measurements"] == 8
    assert facts["report_s"] > 0 and facts["report_bytes"] > 1_000_000
    assert (facts["report_usable_s"] is not None) == all(map(shutil.which, ("chromium", "chromedriver")))
