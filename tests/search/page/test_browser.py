"""The pages in a real browser: figures have marks, choices change them, and the keyboard reaches all of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from search.page.campaign_page import campaign_html
from search.page.campaign_record import CampaignRecord
from search.page.page import write_page
from search.page.record import RunRecord

pytestmark = [pytest.mark.slow, pytest.mark.browser]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1200,900",
)  # fmt: skip
FIGURES = ("baselines", "convergence", "timelines", "graph", "loads", "accuracy")
CONTROLS = "main button, main summary, main input, nav input, nav select, header button"
MARKS = """
const [figure, colours] = arguments;
const filled = [...document.querySelectorAll(`#${figure} svg [fill]`)];
return filled.filter((e) => colours.includes(e.getAttribute("fill"))).length;
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, driven by the chromedriver that is installed; nothing is downloaded."""
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and chromedriver):
        pytest.fail("there is no Chromium with chromedriver here; install both: make browser", pytrace=False)
    browser = started(chromium, chromedriver, lambda: tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


def started(chromium: str, chromedriver: str, new_profile: Callable[[], Path], tries: int = 3) -> Any:
    """A browser. Selenium gives chromedriver half a minute to start, and that gives Chromium a minute; if a busy one
    takes longer, the next one may make it.
    """
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={new_profile()}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.timeouts = {"script": 300_000}  # ms
    try:
        return webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    except WebDriverException:
        if tries == 1:
            raise
    return started(chromium, chromedriver, new_profile, tries - 1)


@pytest.fixture
def page(driver: Any, record: RunRecord, tmp_path: Path) -> Any:
    """The record's page, just opened in a light browser."""
    write_page(record, tmp_path / "x.html")
    prefer(driver, "light")
    driver.get((tmp_path / "x.html").as_uri())
    return driver


@pytest.fixture
def campaign_page(driver: Any, campaign: CampaignRecord, tmp_path: Path) -> Any:
    """The page of a campaign, just opened in a light browser."""
    (tmp_path / "c.html").write_text(campaign_html(campaign))
    prefer(driver, "light")
    driver.get((tmp_path / "c.html").as_uri())
    return driver


def prefer(driver: Any, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def marks(page: Any, figure: str, colours: str) -> int:
    """How many shapes of the figure have one of these colours. colours: an expression in JavaScript."""
    return int(page.execute_script(MARKS, figure, page.execute_script(f"return {colours}")))


def find(page: Any, selector: str) -> Any:
    return page.find_element("css selector", selector)


def click(page: Any, selector: str) -> None:
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", find(page, selector))
    find(page, selector).click()


def points(page: Any, record: RunRecord, searcher: str) -> int:
    return marks(page, "convergence", f"[Charts.searcher({record.searchers.index(searcher)})]")


def test_every_figure_has_its_marks(page: Any, record: RunRecord) -> None:
    for searcher in record.searchers:
        ran = sum(row.step_s is not None for row in record.rows if row.searcher == searcher)
        assert points(page, record, searcher) == ran
        colour = f"[Charts.searcher({record.searchers.index(searcher)})]"
        assert marks(page, "accuracy", colour) == ran
    assert marks(page, "convergence", "['#d03b3b']") == 1  # the one that failed
    forward = sum(bar.kind == "forward" for panel in record.panels for bar in panel.bars)
    assert marks(page, "timelines", "['#4c8fcc']") == forward + 1  # and the legend
    assert marks(page, "graph", "[0, 1].map(Charts.device)") == len({node.unit for node in record.nodes})
    assert marks(page, "loads", "[0, 1].map(Charts.device)") == 2 * 3  # busy, most at once, variables
    for figure in FIGURES:
        assert len(page.find_elements("css selector", f"#{figure} svg text")) > 0


def test_nothing_goes_wrong_and_nothing_is_loaded(page: Any) -> None:
    for button in page.find_elements("css selector", "main button"):
        page.execute_script("arguments[0].click()", button)
    assert [line for line in page.get_log("browser") if line["level"] in ("SEVERE", "WARNING")] == []
    assert page.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []


def test_a_searcher_is_filtered_everywhere(page: Any, record: RunRecord) -> None:
    k = record.searchers.index("hybrid")
    shown = points(page, record, "hybrid")
    click(page, f"input[data-searcher='{k}']")
    assert points(page, record, "hybrid") == 0 < points(page, record, "single")
    assert marks(page, "accuracy", f"[Charts.searcher({k})]") == 0
    rows = page.find_elements("css selector", "tr[data-searcher]")
    hidden = [row for row in rows if row.get_property("hidden")]
    assert {row.get_attribute("data-searcher") for row in hidden} == {str(k)}
    assert len(hidden) == sum(row.searcher == "hybrid" for row in record.rows)
    click(page, f"input[data-searcher='{k}']")
    assert points(page, record, "hybrid") == shown


def test_a_device_is_filtered_everywhere(page: Any, record: RunRecord) -> None:
    click(page, "input[data-device='1']")
    assert marks(page, "graph", "[Charts.device(1)]") == 0 < marks(page, "graph", "[Charts.device(0)]")
    assert marks(page, "loads", "[Charts.device(1)]") == 0 < marks(page, "loads", "[Charts.device(0)]")
    assert marks(page, "timelines", "['#c05a5a']") == 1  # transfers: only their legend
    groups = page.find_elements("css selector", "tr[data-devices='1']")
    assert groups and all(row.get_property("hidden") for row in groups)


def test_units_open_and_close(page: Any, record: RunRecord) -> None:
    colours = "[0, 1].map(Charts.device)"
    closed = marks(page, "graph", colours)
    click(page, "[data-does='Open all units']")
    assert marks(page, "graph", colours) == len(record.nodes) > closed
    click(page, "[data-does='Close all units']")
    assert marks(page, "graph", colours) == closed


def test_timelines_zoom(page: Any) -> None:
    kinds = "['#4c8fcc', '#e0883a', '#6aa84f']"
    whole = marks(page, "timelines", kinds)
    click(page, "[data-figure='timelines'] [data-does='Zoom in']")
    click(page, "[data-figure='timelines'] [data-does='Later']")
    assert 3 <= marks(page, "timelines", kinds) < whole
    click(page, "[data-does='Whole step']")
    assert marks(page, "timelines", kinds) == whole


def test_convergence_is_shown_over_seconds(page: Any) -> None:
    assert "measurements" in find(page, "#convergence svg").text
    click(page, "input[value='seconds']")
    assert "seconds since the search began" in find(page, "#convergence svg").text


def test_dark_follows_the_reader(page: Any) -> None:
    def background() -> str:
        return str(page.execute_script("return getComputedStyle(document.body).backgroundColor"))

    light = background()
    click(page, "#theme")
    dark = background()
    assert dark != light and find(page, "#theme").get_attribute("aria-pressed") == "true"
    assert marks(page, "baselines", "['#7ab8ff']") == 1 and marks(page, "baselines", "['#0b5cad']") == 0
    prefer(page, "dark")
    page.refresh()
    assert background() == dark and find(page, "#theme").text == "Light"
    click(page, "#theme")
    assert background() == light


def test_the_keyboard_reaches_every_control(page: Any, record: RunRecord) -> None:
    from selenium.webdriver import ActionChains, Keys

    reachable = [e.id for e in page.find_elements("css selector", CONTROLS) if e.get_attribute("type") != "radio"]
    reached = set()
    for _ in range(3 * len(reachable)):
        ActionChains(page).send_keys(Keys.TAB).perform()
        reached.add(page.switch_to.active_element.id)
    assert set(reachable) <= reached
    box = find(page, "input[data-searcher='0']")
    page.execute_script("arguments[0].focus()", box)
    ActionChains(page).send_keys(Keys.SPACE).perform()
    assert points(page, record, record.searchers[0]) == 0


def filter_by(page: Any, name: str, text: str) -> None:
    from selenium.webdriver.support.ui import Select

    Select(find(page, f"select[data-filter='{name}']")).select_by_visible_text(text)


def shown_cells(page: Any) -> int:
    rows = page.find_elements("css selector", "tr[data-state]")
    return sum(not row.get_property("hidden") for row in rows)


def wait_for(page: Any, selector: str) -> None:
    """A browser says that something was opened some time after it was."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 60).until(lambda page: page.find_elements("css selector", selector))


def test_a_case_is_drawn_when_it_is_opened(campaign_page: Any, campaign: CampaignRecord) -> None:
    measured = campaign.cases[1]
    assert marks(campaign_page, "curves-0", "[Charts.searcher(0)]") > 20
    assert not campaign_page.find_elements("css selector", "#curves-1 svg, #graph-1 svg")
    click(campaign_page, "details[data-run='1'] > summary")
    figures = ("baselines", "curves", "timelines", "graph", "loads", "accuracy")
    for figure in figures:
        wait_for(campaign_page, f"#{figure}-1 svg text")
    assert marks(campaign_page, "graph-1", "[0, 1].map(Charts.device)") == len({n.unit for n in measured.nodes})
    ran = sum(row.step_s is not None for row in measured.rows)
    assert marks(campaign_page, "accuracy-1", "[0, 1, 2].map(Charts.searcher)") == ran


def test_curves_have_a_band_where_there_are_several_seeds(campaign_page: Any, campaign: CampaignRecord) -> None:
    bands = "return document.querySelectorAll('#curves-0 svg [fill-opacity=\"0.14\"]').length"
    assert campaign_page.execute_script(bands) == 2
    for k, name in enumerate(campaign.searchers):
        curve = next(curve for curve in campaign.cases[0].curves if curve.searcher == name)
        legend, band = 1, int(curve.seeds > 1)
        assert marks(campaign_page, "curves-0", f"[Charts.searcher({k})]") == len(curve.at) - 1 + legend + band
    click(campaign_page, "details[data-run='0'] input[value='seconds']")
    assert "seconds" in find(campaign_page, "#curves-0 svg").text
    assert campaign_page.execute_script(bands) == 2


def test_cells_are_filtered_by_case_kind_state_and_searcher(campaign_page: Any, campaign: CampaignRecord) -> None:
    overview = "[0, 1, 2].map(Charts.searcher)"
    legend = len(campaign.searchers)
    assert shown_cells(campaign_page) == len(campaign.cells) == 12
    assert marks(campaign_page, "overview", overview) == 6 + legend  # of predicted cells the mark is hollow
    filter_by(campaign_page, "state", "done")
    assert shown_cells(campaign_page) == 6 and marks(campaign_page, "overview", overview) == 3 + legend
    click(campaign_page, "input[data-searcher='1']")
    assert shown_cells(campaign_page) == 4 and marks(campaign_page, "overview", overview) == 2 + legend - 1
    assert "show 4." in find(campaign_page, "#shown").text
    filter_by(campaign_page, "case", "b <i> on two")
    assert shown_cells(campaign_page) == 2
    assert not find(campaign_page, "details[data-run='0']").is_displayed()
    wait_for(campaign_page, "#graph-1 svg")
    assert find(campaign_page, "#graph-1 svg").is_displayed()
    filter_by(campaign_page, "case", "all")
    filter_by(campaign_page, "kind", "predicted")
    assert shown_cells(campaign_page) == 2 and not find(campaign_page, "details[data-run='1']").is_displayed()


def test_devices_of_one_case_are_filtered_by_themselves(campaign_page: Any) -> None:
    click(campaign_page, "details[data-run='1'] > summary")
    wait_for(campaign_page, "#graph-1 svg text")
    click(campaign_page, "details[data-run='1'] input[data-device='1']")
    assert (
        marks(campaign_page, "graph-1", "[Charts.device(1)]")
        == 0
        < marks(campaign_page, "graph-1", "[Charts.device(0)]")
    )
    assert marks(campaign_page, "loads-1", "[Charts.device(1)]") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_goes_wrong_on_the_page_of_a_campaign(campaign_page: Any, scheme: str) -> None:
    prefer(campaign_page, scheme)
    campaign_page.refresh()
    campaign_page.execute_script("document.querySelectorAll('details.case').forEach((part) => { part.open = true; })")
    for control in campaign_page.find_elements("css selector", "main button, main input, header button"):
        campaign_page.execute_script("arguments[0].click()", control)
    assert [line for line in campaign_page.get_log("browser") if line["level"] in ("SEVERE", "WARNING")] == []
    assert campaign_page.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_the_keyboard_reaches_the_filters_of_a_campaign(campaign_page: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    named = [e for e in campaign_page.find_elements("css selector", CONTROLS) if e.get_attribute("type") != "radio"]
    reachable = [e.id for e in named if e.is_displayed()]
    reached = set()
    for _ in range(2 * len(reachable)):
        ActionChains(campaign_page).send_keys(Keys.TAB).perform()
        reached.add(campaign_page.switch_to.active_element.id)
    assert set(reachable) <= reached
