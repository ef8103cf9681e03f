"""Devices that Ray provides, as a user names them: ray:N, or ray:N@ADDRESS."""

from __future__ import annotations

from dataclasses import dataclass

from placer.devices.ray.connection import check_address
from placer.errors import BadInputError, short

PREFIX = "ray:"
MOST_NODES = 10_000


@dataclass(frozen=True)
class RaySpec:
    """A request for a worker on each of `count` nodes of the cluster at `address`, given as for `connect`."""

    count: int
    address: str | None = None

    @classmethod
    def parsed(cls, spec: str) -> RaySpec:
        """Parse `spec`. Raises BadInputError unless it is ray:N or ray:N@ADDRESS."""
        count, at, address = spec.removeprefix(PREFIX).partition("@")
        if not (count.isascii() and count.isdecimal() and 0 < int(count[:9]) <= MOST_NODES):
            raise BadInputError(f"devices {short(spec)}: {short(count)} is no number of nodes; write ray:2.")
        try:
            check_address(address if at else None)
        except BadInputError as error:
            raise BadInputError(f"devices {short(spec)}: {error}") from None
        return cls(int(count), address if at else None)

    def __str__(self) -> str:
        return f"{PREFIX}{self.count}" + (f"@{self.address}" if self.address else "")


def is_ray(spec: str | None) -> bool:
    """Whether `spec` asks Ray for devices."""
    return spec is not None and spec.startswith(PREFIX)
