"""`from placer.keras import AutoPlace`: the Keras callback, imported on first use because it imports Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from placer import load

if TYPE_CHECKING:
    from search.online.keras_callback import AutoPlace as AutoPlace


def __getattr__(name: str) -> Any:
    if name != "AutoPlace":
        raise AttributeError(f"module 'placer.keras' has no attribute {name!r}")
    return load("search.online.keras_callback", name)


def __dir__() -> list[str]:
    return ["AutoPlace"]
