"""Which runs there are: the forms of the whole, and what the options make of them."""

import resource
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bench import wire
from bench.results import Series
from bench.transport import Transport
from bench.workloads import PAYLOAD, WORKLOADS, Workload

VERSIONS: Final = {"3.1.1": wire.V311, "5": wire.V5}
SIZES: Final = (64, 1024, 65536)
FILES: Final = 65536  # what the limit of open files is raised to, where that is allowed
SPARE: Final = 500  # descriptors that a broker needs for other things than the connections


@dataclass(frozen=True, slots=True)
class Form:
    """The default plan. The bounds are those of `Workload.scaled`."""

    text: str
    workloads: tuple[str, ...] = tuple(WORKLOADS)
    versions: tuple[str, ...] = ("3.1.1",)
    payloads: tuple[int, ...] = (PAYLOAD,)
    transports: tuple[Transport, ...] = ("tcp",)
    peers: tuple[str, ...] = ("mosquitto", "trunkline")
    rounds: int = 3
    seconds: float = 2.0
    warmup: float = 0.5
    flows: int | None = None
    window: int | None = None
    topics: int | None = None
    held: int | None = None


DEFAULT: Final = "default"
FORMS: Final = {
    DEFAULT: Form("every workload with 64 bytes, Mosquitto and Trunkline"),
    "short": Form(
        "minutes: every workload and size, each scaled down to a second or less: whether it runs and loses nothing; "
        "no figures",
        versions=("3.1.1", "5"),
        payloads=SIZES,
        rounds=1,
        seconds=0.2,
        warmup=0.05,
        flows=12,
        window=50,
        topics=20,
        held=300,
    ),
    "five-minutes": Form(
        "one workload of each kind, Mosquitto and Trunkline",
        workloads=(
            *("pairs-qos0", "fanout-qos0", "fanin-qos0", "shared-qos0", "wildcard-qos0", "pairs-qos1", "pairs-qos2"),
            *("sparse-qos0", "sparse-qos1", "connect", "retained", "subscribe-100k", "idle"),
        ),
    ),
    "full": Form(
        "every workload with both versions, every size, and all brokers that are there",
        versions=("3.1.1", "5"),
        payloads=SIZES,
        peers=("mosquitto", "trunkline", "nats-server", "aedes", "amqtt", "sink"),
    ),
}


@dataclass(frozen=True, slots=True)
class Group:
    """What the peers are compared in."""

    workload: Workload
    version: str

    def empty(self, peer: str, unsupported: str | None) -> Series:
        return Series(self.workload, self.version, peer, unsupported)


def groups(
    workloads: Iterable[Workload], versions: list[str], payloads: list[int], transports: Sequence[Transport] = ("tcp",)
) -> Iterator[Group]:
    """Every version with the first size; the other sizes with the first version, and where they are asked for."""
    for workload in filter(None, (each.over(transport) for each in workloads for transport in transports)):
        for payload in payloads if workload.sizes else [PAYLOAD]:
            for version in versions if payload == payloads[0] or not workload.sizes else versions[:1]:
                yield Group(workload.sized(payload) if workload.sizes else workload, version)


def allow_files() -> int:
    """Raises the limit of open files, of this process and of the brokers that it starts; and says what it is now."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (FILES, hard):
        if hard != resource.RLIM_INFINITY and limit < hard:
            continue
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        except (ValueError, OSError):  # only the system's administrator may have more than the hard limit
            continue
        return limit
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def within(workload: Workload, files: int) -> Workload:
    """With as many connections as there may be."""
    return workload.scaled(flows=max(1, files - SPARE), window=None, topics=None)
