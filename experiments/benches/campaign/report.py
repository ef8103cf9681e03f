"""What the page of a campaign costs: seconds to make it, bytes, and seconds until a browser has drawn it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from experiments.benches.bench import Facts
from experiments.benches.simulator_speed import layered, machine
from experiments.campaign.run import Campaign
from experiments.campaign.spec import Spec, read_spec
from experiments.campaign.store import CampaignStore
from placer.graph.graph_files import write_graph, write_topology

GRAPHS = {"small.json": (60, 150, 6), "large.json": (120, 300, 6)}  # ops, edges, ops side by side
SEARCHERS, SEEDS, MEASUREMENTS = ("genetic", "random"), (0, 1, 2, 3, 4), 25
ALL = len(GRAPHS) * len(SEARCHERS) * len(SEEDS) * MEASUREMENTS
REPEATS = 5
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900")
DRAWN = "return (performance.getEntriesByName('drawn')[0] || {startTime: null}).startTime"


def report_facts() -> Facts:
    """The costs for a campaign of ALL measurements, by the command. `report_usable_s` is None without Chromium."""
    with TemporaryDirectory(prefix="placer-report-") as folder:
        spec = _spec(Path(folder))
        with CampaignStore(spec.store) as store:
            Campaign(spec, store).run()
            count = sum(len(held.trials) for held in store.held())
        page = Path(folder) / "report.html"
        made_s = [_made(spec, page) for _ in range(REPEATS)]
        opened_s = usable_s(page)
        return {
            "report_s": median(made_s),
            "report_bytes": page.stat().st_size,
            "report_usable_s": None if opened_s is None else median(opened_s),
            "report_measurements": count,
        }


def _spec(folder: Path) -> Spec:
    for name, size in GRAPHS.items():
        write_graph(folder / name, layered(*size))
    write_topology(folder / "topology.json", machine())
    path = folder / "campaign.toml"
    path.write_text(
        f'format = "placer.campaign/1"\nsearchers = {json.dumps(SEARCHERS)}\nseeds = {json.dumps(SEEDS)}\n'
        f"measurements = {MEASUREMENTS}\n"
        f'[[predicted]]\ngraphs = {json.dumps(list(GRAPHS))}\ntopologies = ["topology.json"]\n'
    )
    return read_spec(path)


def _made(spec: Spec, page: Path) -> float:
    """Seconds that the command takes, including the start of Python."""
    begin_s = time.perf_counter()
    command = [sys.executable, "-m", "placer", "campaign", "report", str(spec.path), "--out", str(page)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin_s


def usable_s(page: Path) -> list[float] | None:
    """Seconds until a page that headless Chromium opens has drawn its first figures and its controls work; one value
    for each of REPEATS. None without Chromium and its driver.
    """
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and chromedriver):
        return None
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    try:
        return [_opened(browser, page) for _ in range(REPEATS)]
    finally:
        browser.quit()


def _opened(browser: Any, page: Path) -> float:
    browser.get(page.as_uri())
    return float(browser.execute_script(DRAWN)) / 1e3
