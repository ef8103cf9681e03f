"""Times and sizes as text, the same in lines, tables, pages and pictures."""

from __future__ import annotations


def ms(seconds: float | None, digits: int = 2) -> str:
    """Seconds as milliseconds with `digits` digits after the point; None is ""."""
    return "" if seconds is None else f"{seconds * 1e3:.{digits}f} ms"


def short_ms(seconds: float | None) -> str:
    """Seconds as milliseconds with up to four significant digits; from one second on, without digits after the point.
    None is "".
    """
    if seconds is None or seconds >= 1:
        return ms(seconds, 0)
    return f"{seconds * 1e3:.4g} ms"


def mib(size_bytes: float) -> str:
    """Bytes as mebibytes, to a tenth."""
    return f"{size_bytes / 2**20:.1f} MiB"
