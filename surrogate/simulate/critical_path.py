"""The chain of a simulated step that ends last: what has to change for the step to become shorter."""

from __future__ import annotations

from bisect import bisect_right

from surrogate.simulate.timeline import Span, Timeline, Transfer


def critical_chain(timeline: Timeline) -> list[int]:
    """Ops on the chain that ends the step, the last first; those at both ends of a crossing are both in it.

    From the span that ends last back to what it waited for: what its device did until then, else the tensor that came
    then and the op that made it.
    """
    chain = _Chain(timeline)
    span: Span | None = max(timeline.spans, key=lambda s: (s.end_s, s.start_s), default=None)
    found: dict[int, None] = {}
    left = len(timeline.spans) + len(timeline.transfers)
    while span is not None and left > 0:
        found[span.op] = None
        span = chain.before(span)
        left -= 1
    return list(found)


class _Chain:
    """Spans and arrivals by device and time."""

    def __init__(self, timeline: Timeline) -> None:
        devices = range(len(timeline.topology))
        self.spans: list[list[Span]] = [[s for s in timeline.spans if s.device == d] for d in devices]
        self.begins = [[s.start_s for s in spans] for spans in self.spans]
        arrivals = sorted(timeline.transfers, key=lambda t: t.end_s)
        self.arrivals: list[list[Transfer]] = [[t for t in arrivals if t.dst == d] for d in devices]
        self.comes = [[t.end_s for t in transfers] for transfers in self.arrivals]

    def before(self, span: Span) -> Span | None:
        """What `span` waited for: the last to end, on its device or by an arrival there."""
        own = self._last(span.device, span.start_s, span)
        at = bisect_right(self.comes[span.device], span.start_s) - 1
        if at < 0 or (own is not None and own.end_s >= self.comes[span.device][at]):
            return own
        came = self.arrivals[span.device][at]
        return self._last(came.src, came.start_s, span) or own

    def _last(self, device: int, until_s: float, but: Span) -> Span | None:
        """The last span of the device that began before `until_s`."""
        at = bisect_right(self.begins[device], until_s) - 1
        while at >= 0 and (self.spans[device][at] is but or self.spans[device][at].end_s > until_s):
            at -= 1
        return self.spans[device][at] if at >= 0 else None
