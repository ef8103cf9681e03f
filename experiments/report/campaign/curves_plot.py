"""Convergence as a picture: for each case, how fast its searchers approach the best known step."""

from __future__ import annotations

from math import inf

from experiments.campaign.standing import best_single_s, standing
from experiments.campaign.store import CampaignStore
from experiments.report.campaign.curves import Course, curves_of
from experiments.report.plots.regret import RegretCurve, RegretPanel, regret_picture
from placer.errors import PlacerError
from search.page.record import Curve


def picture(store: CampaignStore, format: str) -> bytes:
    """The picture in `format`, such as "png". Raises PlacerError if there is nothing to draw."""
    panels = regret_panels(store)
    if not panels:
        raise PlacerError(
            f"{store.path}: no mapping was measured, so that there is no convergence to draw: nothing ran yet, or a "
            "single device was proven to be the best."
        )
    return regret_picture(panels, format)


def regret_panels(store: CampaignStore) -> list[RegretPanel]:
    """One panel for each case in which something ran, with each searcher's median and range over its seeds."""
    cells = store.held()
    states = {row["cell"]: row["state"] for row in standing(store, cells)["cells"]}
    courses: dict[str, list[Course]] = {}
    for held in cells:
        course = Course.of(held, best_single_s(store.opened(held.case_key)), states[held.key] == "done")
        courses.setdefault(held.case_key, []).append(course)
    found = [_panel(case, searches) for case, searches in courses.items()]
    return [panel for panel in found if panel.curves]


def _panel(case: str, courses: list[Course]) -> RegretPanel:
    best_s = min((min(course.best_s) for course in courses), default=inf)
    curves = [_curve(curve, best_s) for curve in curves_of(courses) if curve.axis == "order"]
    return RegretPanel(case, tuple(curves))


def _curve(curve: Curve, best_s: float) -> RegretCurve:
    """The regret at every count. The page's curve has fewer counts, and each of its values holds until the next."""
    spread = {int(at): values for at, *values in zip(curve.at, curve.median_s, curve.low_s, curve.high_s, strict=True)}
    rows: list[tuple[float | None, ...]] = []
    for count in range(int(curve.at[-1]) + 1):
        known = [value / (best_s or 1.0) - (best_s > 0) for value in spread[count]] if count in spread else None
        rows.append(tuple(known) if known else rows[-1] if rows else (None, None, None))
    middle, low, high = zip(*rows, strict=True)
    return RegretCurve(curve.searcher, middle, low=low, high=high)
