"""The chain of a simulated step that ends last: the step gets shorter only if this chain does."""

from __future__ import annotations

from bisect import bisect_right

from surrogate.simulate.timeline import Span, Timeline, Transfer


def critical_chain(timeline: Timeline) -> list[int]:
    """Ops on the chain that ends the step, the last first; the ops at both ends of a crossing are in it.

    It leads from the span that ends last back to what each span waited for: the span before it on its device, or the
    tensor that arrived and the op that made it.
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
        """The span that `span` waited for: the last before it on its device, or where the last arrival came from."""
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
