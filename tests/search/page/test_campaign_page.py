"""The page of a campaign holds its cells and cases, loads nothing, and says what is missing."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from search.page.campaign_page import campaign_html
from search.page.campaign_record import CampaignRecord


@pytest.fixture(scope="module")
def page(campaign: CampaignRecord) -> str:
    return campaign_html(campaign)


def test_the_record_in_the_page_is_the_record(page: str, campaign: CampaignRecord) -> None:
    found = json.loads(re.search(r'id="record">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert found["cells"]["best_s"] == [cell.best_s for cell in campaign.cells]
    assert [case["title"] for case in found["cases"]] == [case.title for case in campaign.cases]
    assert found["cases"][1]["curves"]["median_s"] == [list(curve.median_s) for curve in campaign.cases[1].curves]
    assert {tuple(case["searchers"]) for case in found["cases"]} == {campaign.searchers}


def test_every_cell_has_a_row_that_its_filters_find(page: str, campaign: CampaignRecord) -> None:
    rows = re.findall(r'<tr data-searcher="(\d)" data-case="(\d)" data-kind="(\w+)" data-state="(\w+)">', page)
    assert rows == [
        (str(campaign.searchers.index(cell.searcher)), str(cell.case), cell.kind, cell.state) for cell in campaign.cells
    ]


def test_what_is_missing_is_said_and_has_no_figure(page: str) -> None:
    assert "No graph of the best mapping: a.json has changed." in page
    assert 'id="graph-0"' not in page and 'id="graph-1"' in page


def test_ids_are_unique_and_figures_described(page: str) -> None:
    body = page.split("<script")[0]
    ids = re.findall(r' id="([^"]+)"', body)
    assert len(ids) == len(set(ids))
    assert (
        body.count('role="img"') == len(re.findall(r'role="img" aria-label="[^"]+"', body)) == body.count("data-chart=")
    )


def test_names_are_text_and_nothing_is_loaded(page: str) -> None:
    assert page.count("</script>") == page.count("<script")
    assert "<went>" not in page and "on two: <i>" not in page
    assert not re.search(r"(src|href)=|url\(|@import|<link|<iframe", page.split("<script>")[0])
    assert "default-src 'none'" in page


def test_what_failed_is_told_with_its_reason(page: str, campaign: CampaignRecord) -> None:
    assert "What failed" in page and "no room &lt;/script&gt;" in page
    assert "What failed" not in campaign_html(replace(campaign, failures=()))


def test_a_campaign_that_has_not_begun_has_a_page(campaign: CampaignRecord) -> None:
    waiting = tuple(replace(cell, best_s=None, best_single_s=None, done=0) for cell in campaign.cells)
    bare = tuple(replace(campaign.cases[0], baselines=(), curves=()) for _ in campaign.cases)
    page = campaign_html(replace(campaign, cells=waiting, cases=bare, failures=()))
    assert "data-chart" not in page.split("<script")[0]
