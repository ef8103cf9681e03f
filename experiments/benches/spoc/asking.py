"""The questions to the processes that measure, one for each kind of device; answers are kept."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.benches.bench import BenchOptions, Facts
from experiments.benches.kept_runs import kept
from experiments.benches.process import Doer, Measurer
from experiments.benches.spoc.device_kinds import ALL_CORES, DeviceKind, settle
from experiments.benches.spoc.networks import Network
from experiments.benches.spoc.published import judged, native
from experiments.jobs.profile import Advance

NOT_REACHED = "not reached"
HOW = 2  # version of the measuring; results of other versions are measured again


def study(kind: DeviceKind) -> Doer:
    """Make the study, in the process that measures."""
    settle(kind)
    from experiments.benches.spoc.measure import Repeats, SpocStudy

    return SpocStudy(Repeats())


@dataclass(frozen=True)
class Asking:
    """The questions of one run of the bench. until_s: time.perf_counter() after which no network is begun."""

    options: BenchOptions
    measurers: Mapping[DeviceKind, Measurer]
    until_s: float

    def measured(self, network: Network, kind: DeviceKind) -> Facts:
        """The measured facts of a network, or why it was skipped. Facts that were kept are not measured again."""

        def ask() -> Facts:
            if time.perf_counter() > self.until_s:  # "failed" is tried again
                return {"failed": NOT_REACHED, "skipped": NOT_REACHED, "detail": "--minutes were over"}
            return _tried_again(self.measurers[kind].ask("measured", network))

        settings = {"network": network.name, "device": kind.name, "how": HOW}
        return kept(self.options, f"spoc/{kind.slug}/{network.name}", settings, ask)

    def counted(self, kind: str, advance: Advance) -> Facts:
        """The parameters and multiply-adds of a published network, which is traced but not run."""
        advance(f"counting {kind}")

        def ask() -> Facts:
            return _tried_again(self.measurers[ALL_CORES].ask("counted", native(kind)))

        return judged(kind, kept(self.options, f"spoc/published-{kind}", {"network": kind, "how": HOW}, ask))


def _tried_again(found: Facts) -> Facts:
    """The answer, with "failed" if the network may have been skipped because the machine was busy, so that it is tried
    again.
    """
    return found | ({"failed": found["detail"]} if found.get("skipped") in ("time", "died", "failed") else {})
