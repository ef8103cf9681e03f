"""Times and sizes as text, the same in lines, tables, pages and pictures."""

from __future__ import annotations


def ms(seconds: float | None, digits: int = 2) -> str:
    """Seconds as milliseconds with `digits` digits after the point, or with three significant digits where these would
    all be 0; None is "".
    """
    if seconds is None:
        return ""
    text = f"{seconds * 1e3:.{digits}f}"
    return f"{text if float(text) or not seconds else f'{seconds * 1e3:.3g}'} ms"


def short_ms(seconds: float | None) -> str:
    """Seconds as milliseconds with up to four significant digits; from one second on, without digits after the point.
    None is "".
    """
    if seconds is None or seconds >= 1:
        return ms(seconds, 0)
    return f"{seconds * 1e3:.4g} ms"


def mib(size_bytes: float) -> str:
    """Bytes as mebibytes, to a tenth; as kibibytes or bytes where that would be 0."""
    for unit, size in (("MiB", 2**20), ("KiB", 2**10)):
        if abs(size_bytes) >= size / 20 or not size_bytes:
            return f"{size_bytes / size:.1f} {unit}"
    return f"{size_bytes:.0f} B"
