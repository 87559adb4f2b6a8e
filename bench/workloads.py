"""The kinds of traffic: what is sent to whom, how much of it at once, and what it is measured in."""

from dataclasses import dataclass, replace
from typing import Final, Literal

from bench.transport import ENCRYPTED, Transport
from bench.wire import payload_of, publish_frames

PAYLOAD: Final = 64
IN_FLIGHT: Final = 4 << 20  # bytes that a publisher may be ahead, however large its messages are
MEMBERS: Final = 8  # of the shared group

Kind = Literal["pairs", "fanout", "pool", "echo", "connect", "retained", "subscribe", "idle", "online", "offline"]
UNITS: Final[dict[Kind, str]] = {
    "connect": "connections/s",
    "subscribe": "packets/s",
    "idle": "bytes/connection",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """`flows` are what there is many of: pairs, the subscribers of a fan-out, the publishers of a pool, or connections.
    `held` is made before anything is measured: connections, subscriptions or retained messages, as the kind has it.
    """

    name: str
    text: str
    kind: Kind
    flows: int
    qos: int = 0
    window: int = 8000
    topics: int = 1
    payload: int = PAYLOAD
    sizes: bool = False  # measured with large payloads, too
    members: int = 1  # subscribers of a pool, or of each publisher
    shared: bool = False  # they are one group
    held: int = 0
    batch: int = 0  # filters in one SUBSCRIBE of those that are held
    resumes: bool = False  # TLS sessions
    stays: bool = False  # the sessions of clients that connect
    will: bool = False  # those clients have one
    transport: Transport = "tcp"

    @property
    def unit(self) -> str:
        return UNITS.get(self.kind, "deliveries/s")

    @property
    def held_unit(self) -> str:
        return {"subscribe": "subscription", "retained": "retained message"}.get(self.kind, "connection")

    @property
    def less_is_better(self) -> bool:
        return self.kind == "idle"

    @property
    def counts_bytes(self) -> bool:
        return self.qos == 0 and self.kind in ("pairs", "fanout", "pool")

    @property
    def copies(self) -> int:
        """Deliveries that come of one message; of many sessions that are offline, some are asked for theirs."""
        if self.kind == "offline":
            return min(self.members, MEMBERS)
        return self.flows if self.kind == "fanout" else 1

    def scaled(
        self, *, flows: int | None, window: int | None, topics: int | None, held: int | None = None
    ) -> "Workload":
        """For smoke tests: never more than these."""
        fewer = min(self.flows, flows or self.flows)
        return replace(
            self,
            flows=fewer,
            window=min(self.window, window or self.window),
            topics=min(self.topics, topics or self.topics),
            held=fewer if self.kind == "idle" else min(self.held, held or self.held),
            batch=min(self.batch, held or self.batch),
        )

    def sized(self, payload: int) -> "Workload":
        """With as many messages on their way as before, or as few as fit what brokers keep in memory."""
        return replace(self, payload=payload, window=max(2, min(self.window, IN_FLIGHT // payload)))

    def over(self, transport: Transport) -> "Workload | None":
        """With all clients over that transport; None where this is not measured."""
        if transport != "tcp" and self.kind in ("retained", "online", "offline"):
            return None
        return None if self.resumes and transport not in ENCRYPTED else replace(self, transport=transport)

    def topic(self, flow: int, topic: int = 0) -> str:
        return f"bench/{flow:03}/{topic:04}/t"

    def topic_filter(self, flow: int) -> str:
        if self.kind == "pool":
            return "$share/g/bench/+/0000/t" if self.shared else "bench/+/0000/t"
        return f"bench/{flow:03}/+/t" if self.topics > 1 else self.topic(flow)

    @property
    def retained_filter(self) -> str:
        return "bench/000/+/t"

    def frames(self, flow: int, version: int) -> list[bytes]:
        topics = [self.topic(flow, topic) for topic in range(self.topics)]
        number = self.topics
        if self.qos and self.kind in ("pairs", "online", "offline"):  # packet ids of which none is used again too soon
            number = self.window * (10 if self.window * self.payload < IN_FLIGHT // 8 else 2)
        return publish_frames(topics, payload_of(self.payload), self.qos, version, number)

    def frame_size(self, version: int) -> int:
        return len(replace(self, window=1).frames(0, version)[0])

    def held_filter(self, number: int) -> str:
        """One in ten has a wildcard."""
        return f"held/{number // 1000:04}/{number % 1000:03}/{'+' if number % 10 == 9 else 't'}"


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("pair-qos0", "one pair, QoS 0, streaming", "pairs", 1, sizes=True),
        Workload("pairs-qos0", "eight pairs, QoS 0, streaming", "pairs", 8, sizes=True),
        Workload("fanout-qos0", "one publisher to fifty subscribers, QoS 0", "fanout", 50, sizes=True),
        Workload("fanin-qos0", "fifty publishers to one subscriber, QoS 0", "pool", 50, window=160),
        Workload(
            "shared-qos0",
            "eight publishers to a shared group of eight, QoS 0",
            "pool",
            8,
            window=1000,
            members=MEMBERS,
            shared=True,
        ),
        Workload("wildcard-qos0", "eight pairs, QoS 0, 1,000 topics each, one + filter", "pairs", 8, topics=1000),
        Workload("pairs-qos1", "eight pairs, QoS 1, window 100", "pairs", 8, qos=1, window=100, sizes=True),
        Workload("pairs-qos2", "eight pairs, QoS 2, window 100", "pairs", 8, qos=2, window=100, sizes=True),
        Workload("sparse-qos0", "500 connections, one message each on its way, QoS 0", "echo", 500),
        Workload("sparse-qos1", "500 connections, one message each on its way, QoS 1", "echo", 500, qos=1),
        Workload("connect", "connect, CONNACK, DISCONNECT; 150 at a time", "connect", 150),
        Workload(
            "connect-resumed", "the same, each resuming a TLS session; only with TLS", "connect", 150, resumes=True
        ),
        Workload(
            "retained", "10,000 retained messages to a new subscriber, four at a time", "retained", 4, held=10_000
        ),
        Workload(
            "subscribe-100k",
            "SUBSCRIBE and UNSUBSCRIBE of fifty clients beside 100,000 subscriptions",
            "subscribe",
            50,
            window=10,
            held=100_000,
            batch=1000,
        ),
        Workload(
            "subscribe-1m",
            "SUBSCRIBE and UNSUBSCRIBE of fifty clients beside 1,000,000 subscriptions",
            "subscribe",
            50,
            window=10,
            held=1_000_000,
            batch=10_000,
        ),
        Workload("idle", "memory of a connection that does nothing; 15,000 of them", "idle", 15_000, held=15_000),
    )
}
