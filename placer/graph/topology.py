"""The machine that a search plans for: devices and the links between them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from placer.errors import BadInputError, listed, plain, short

CONTENTIONS = ("none", "link", "port")
TIERS = ("within", "between")
ANY = "*"


@dataclass(frozen=True, slots=True)
class Device:
    """Something an op can run on."""

    name: str
    kind: str
    memory_bytes: int | None = None  # None = unlimited
    speed: float = 1.0  # costs are divided by it
    ingress_bytes_per_s: float | None = None  # ingress and egress: max-load objective only; None = free
    egress_bytes_per_s: float | None = None
    address: str | None = None  # host:port of the worker that serves it; None = this process's, or not to be joined
    node: str | None = None  # the machine it is in; links may be given by tier if every device has one
    hardware: str = ""  # a GPU's product, a CPU's cores and model; "" if unknown. Not written to files


@dataclass(frozen=True, slots=True)
class Link:
    """The costs of a transfer from `src` to `dst`. `*` matches any device; `tier` restricts the link to pairs within a
    node or between nodes.

    A transfer lasts latency_s + bytes / bandwidth_bytes_per_s and overlaps compute. Before it starts, the sending
    device is busy for send_s + bytes * send_s_per_byte; after it arrives, the receiving device is busy for
    receive_s + bytes * receive_s_per_byte.
    """

    src: str
    dst: str
    latency_s: float
    bandwidth_bytes_per_s: float
    send_s: float = 0.0
    send_s_per_byte: float = 0.0
    receive_s: float = 0.0
    receive_s_per_byte: float = 0.0
    tier: str | None = None  # one of TIERS; None = both

    def transfer_s(self, link_bytes: float) -> float:
        """Seconds of the transfer, without either end's work."""
        return self.latency_s + link_bytes / self.bandwidth_bytes_per_s

    def send_busy_s(self, link_bytes: float) -> float:
        """Seconds the sender's compute is busy."""
        return self.send_s + link_bytes * self.send_s_per_byte

    def receive_busy_s(self, link_bytes: float) -> float:
        """Seconds the receiver's compute is busy."""
        return self.receive_s + link_bytes * self.receive_s_per_byte

    def slowed(self, tensor_factor: float, byte_factor: float) -> Link:
        """This link with its seconds per tensor x `tensor_factor` and its seconds per byte x `byte_factor`."""
        return replace(
            self,
            latency_s=self.latency_s * tensor_factor,
            send_s=self.send_s * tensor_factor,
            receive_s=self.receive_s * tensor_factor,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s / byte_factor,
            send_s_per_byte=self.send_s_per_byte * byte_factor,
            receive_s_per_byte=self.receive_s_per_byte * byte_factor,
        )


@dataclass(frozen=True)
class Topology:
    """Devices and the links between them, validated when made. Later links override earlier ones.

    contention: how many transfers go on at once: with "none" all, with "link" one per ordered pair of devices, with
    "port" one per device, in or out. Raises BadInputError without devices, for a name that two devices have, an unknown
    contention, a link that names an unknown device or does not fit its tier, and numbers out of range.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()
    contention: str = "none"
    counts_tensors: bool = field(default=True, compare=False)  # whether memory_bytes limits tensors, too

    def __post_init__(self) -> None:
        if not self.devices:
            raise BadInputError("the topology has no devices; list at least one.")
        if len(self.index) != len(self.devices):
            raise BadInputError("the topology names a device twice; device names must be unique.")
        if self.contention not in CONTENTIONS:
            raise BadInputError(f"contention {short(self.contention)} is none of {', '.join(CONTENTIONS)}.")
        for device in self.devices:
            _check_device(device)
        for link in self.links:
            self._check_link(link)

    def __len__(self) -> int:
        return len(self.devices)

    @cached_property
    def index(self) -> dict[str, int]:
        """Device name -> position in `devices`."""
        return {device.name: i for i, device in enumerate(self.devices)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the devices, in the order of `devices`."""
        return tuple(device.name for device in self.devices)

    def check_names(self) -> None:
        """Raises BadInputError if costs given by device name could be taken for costs given by kind."""
        for device in self.devices:
            named = self.index.get(device.kind)
            if named is not None and self.devices[named].kind != device.kind:
                raise BadInputError(
                    f"{short(device.kind)} is the kind of device {short(device.name)} and the name of a device of "
                    "another kind, so that costs by that word would mean both; give it another name."
                )

    @cached_property
    def least_memory_bytes(self) -> float:
        """The memory of the smallest device; infinite if no device is limited."""
        return min((float(d.memory_bytes) for d in self.devices if d.memory_bytes is not None), default=math.inf)

    @property
    def nodes(self) -> tuple[str | None, ...]:
        """The node of each device."""
        return tuple(device.node for device in self.devices)

    @cached_property
    def table(self) -> tuple[tuple[Link | None, ...], ...]:
        """table[src][dst]: the link in effect; None on the diagonal and for pairs without a link."""
        n = len(self.devices)
        table: list[list[Link | None]] = [[None] * n for _ in range(n)]
        for link in self.links:
            for s in self._matching(link.src):
                for d in self._matching(link.dst):
                    if s != d and link.tier in (None, self.tier(s, d)):
                        table[s][d] = link
        return tuple(tuple(row) for row in table)

    @cached_property
    def mean_link(self) -> Link:
        """The average cost of a transfer over the links between different devices; zero if there are no links."""
        links = [link for row in self.table for link in row if link is not None]
        count = max(len(links), 1)
        per_byte = sum(1 / link.bandwidth_bytes_per_s for link in links) / count
        return Link(
            ANY,
            ANY,
            latency_s=sum(link.latency_s for link in links) / count,
            bandwidth_bytes_per_s=1 / per_byte if per_byte else math.inf,
            send_s=sum(link.send_s for link in links) / count,
            send_s_per_byte=sum(link.send_s_per_byte for link in links) / count,
            receive_s=sum(link.receive_s for link in links) / count,
            receive_s_per_byte=sum(link.receive_s_per_byte for link in links) / count,
        )

    def narrowed(self, names: Collection[str]) -> Topology:
        """The topology of only the devices `names`, in their order here, and the links among them."""
        ends = {*names, ANY}
        return replace(
            self,
            devices=tuple(device for device in self.devices if device.name in names),
            links=tuple(link for link in self.links if {link.src, link.dst} <= ends),
        )

    def link(self, src: int, dst: int) -> Link:
        """The link between two different devices. Raises BadInputError if the topology has none."""
        link = self.table[src][dst]
        if link is None:
            pair = _pair(self.devices[src].name, self.devices[dst].name)
            raise BadInputError(f"the topology has no link {pair}, and a tensor must cross it; add one to 'links'.")
        return link

    def tier(self, src: int, dst: int) -> str | None:
        """The tier of two devices: "within" one node or "between" two nodes; None if a node is unknown."""
        here, there = self.devices[src].node, self.devices[dst].node
        if here is None or there is None:
            return None
        return "within" if here == there else "between"

    def _matching(self, end: str) -> Sequence[int]:
        return range(len(self.devices)) if end == ANY else (self.index[end],)

    def _check_link(self, link: Link) -> None:
        for end in (link.src, link.dst):
            if end != ANY and end not in self.index:
                raise BadInputError(f"a link names the device {short(end)}; the topology has {listed(self.names)}.")
        where = f"link {_pair(link.src, link.dst)}"
        if link.tier is not None:
            self._check_tier(link, where)
        if not link.bandwidth_bytes_per_s > 0:
            raise BadInputError(f"{where}: bandwidth_bytes_per_s is {link.bandwidth_bytes_per_s}; give one > 0.")
        seconds = {
            "latency_s": link.latency_s,
            "send_s": link.send_s,
            "send_s_per_byte": link.send_s_per_byte,
            "receive_s": link.receive_s,
            "receive_s_per_byte": link.receive_s_per_byte,
        }
        for name, value in seconds.items():
            if not 0 <= value < math.inf:
                raise BadInputError(f"{where}: {name} is {value}; give seconds >= 0.")

    def _check_tier(self, link: Link, where: str) -> None:
        if link.tier not in TIERS:
            raise BadInputError(f"{where}: the tier {short(str(link.tier))} is none of {', '.join(TIERS)}.")
        ends = (self.devices[i] for end in (link.src, link.dst) for i in self._matching(end))
        if (bare := next((device for device in ends if device.node is None), None)) is not None:
            raise BadInputError(
                f"{where} is for the tier {link.tier}, and device {short(bare.name)} has no node; give it one, or "
                "leave the tier out."
            )
        if ANY not in (link.src, link.dst) and self.tier(self.index[link.src], self.index[link.dst]) != link.tier:
            nodes = (short(str(self.devices[self.index[end]].node)) for end in (link.src, link.dst))
            raise BadInputError(
                f"{where} is for the tier {link.tier}, and its ends are on {' and '.join(nodes)}; leave the tier out."
            )


def _pair(src: str, dst: str) -> str:
    return f"{plain(src)} -> {plain(dst)}"


def _check_device(device: Device) -> None:
    where = f"device {short(device.name)}"
    if not device.name or device.name == ANY or not device.kind:
        raise BadInputError(f"{where}: a device needs a name (not '*') and a kind.")
    if not 0 < device.speed < math.inf:
        raise BadInputError(f"{where}: speed is {device.speed}; give one > 0.")
    if device.memory_bytes is not None and not 0 <= device.memory_bytes < math.inf:
        raise BadInputError(f"{where}: memory_bytes is {device.memory_bytes}; give bytes >= 0, or leave it out.")
    for name in ("ingress_bytes_per_s", "egress_bytes_per_s"):
        rate = getattr(device, name)
        if rate is not None and not rate > 0:
            raise BadInputError(f"{where}: {name} is {rate}; give one > 0, or leave it out.")
    if device.node == "":
        raise BadInputError(f"{where}: its node has no name; name it, or leave node out.")
