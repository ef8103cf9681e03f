"""The report of a campaign in one of its formats: a page, Markdown, or a picture of convergence."""

from __future__ import annotations

from pathlib import Path

from experiments.campaign.spec import Spec
from experiments.campaign.standing import after, standing
from experiments.campaign.store import CampaignStore
from experiments.report.campaign.markdown import report_markdown
from experiments.report.plots.picture import FORMATS
from placer.errors import BadInputError, short

HTML, MARKDOWN = "html", "md"
ENDINGS = {".html": HTML, ".htm": HTML, ".md": MARKDOWN, **{ending: ending[1:] for ending in FORMATS}}


def check_report(out: Path | None, format: str | None) -> str:
    """The format that `format` says, or else the ending of `out`, or else Markdown. Raises BadInputError."""
    if format is not None and format not in (HTML, MARKDOWN):
        raise BadInputError(f"--format is {short(format)}; choose {HTML} or {MARKDOWN}, or let --out's ending say it.")
    if format is not None:
        return format
    if out is None:
        return MARKDOWN
    if out.suffix.lower() not in ENDINGS:
        raise BadInputError(f"{out}: a report ends in {', '.join(ENDINGS)}; give --out such a name, or --format.")
    return ENDINGS[out.suffix.lower()]


def report_content(store: CampaignStore, spec: Spec | None, format: str) -> bytes:
    """The report. spec: names the files from which figures are made; None if it is not known."""
    if format == MARKDOWN:
        return report_markdown(standing(store), after(store, budgets(store, spec))).encode()
    if format != HTML:
        from experiments.report.campaign.curves_plot import picture

        return picture(store, format)
    from experiments.report.campaign.page_record import campaign_record
    from search.page.campaign_page import campaign_html

    cases = {} if spec is None else {cell.case.key: cell.case for cell in spec.cells}
    return campaign_html(campaign_record(store, cases)).encode()


def budgets(store: CampaignStore, spec: Spec | None) -> tuple[int, ...]:
    """The numbers of measurements at which searchers are compared: those of the spec, or else the end."""
    if spec is not None:
        return spec.budgets
    return (max((held.wanted or len(held.measured) for held in store.held()), default=1),)
