"""The broker's metrics as `$SYS/broker/…` topics, with Mosquitto's names, which dashboards and exporters read. Pure: it
turns metrics that were read elsewhere into payloads. The node publishes them, retained and with QoS 0.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from trunkline.broker.metrics import WINDOWS, DropReason, LimitKind

PREFIX: Final = "$SYS/broker/"

Figures = Mapping[str, int]

#: Topics below the prefix, each with the names of the metrics that it sums up, and its description.
TOTALS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "clients/connected": (("connections.count",), "Clients connected."),
    "clients/active": (("connections.count",), "Clients connected; an old name."),
    "clients/total": (("sessions.count",), "Clients known: connected, or away with a session kept."),
    "clients/maximum": (("sessions.max",), "The most clients known at once."),
    "clients/expired": (("session.expired",), "Clients whose session ended because they stayed away too long."),
    "connections/socket/count": (("connections.accepted",), "Network connections accepted."),
    "messages/received": (("packets.received",), "Control packets received, of any type."),
    "messages/sent": (("packets.sent",), "Control packets sent, of any type."),
    "messages/inflight": (("inflight.count",), "Messages sent and not yet acknowledged."),
    "messages/stored": (("retained.count", "queue.count", "inflight.count"), "Messages held; an old name."),
    "store/messages/count": (
        ("retained.count", "queue.count", "inflight.count"),
        "Messages held: retained, waiting, or not yet acknowledged. Once for each client that they wait for.",
    ),
    "store/messages/bytes": (("retained.bytes", "queue.bytes"), "Bytes of the messages retained and waiting."),
    "publish/messages/received": (("packets.publish.received",), "PUBLISH packets received."),
    "publish/messages/sent": (("packets.publish.sent",), "PUBLISH packets sent."),
    "publish/messages/dropped": (("delivery.dropped",), "Deliveries dropped, for any reason."),
    "bytes/received": (("bytes.received",), "Bytes received on all connections."),
    "bytes/sent": (("bytes.sent",), "Bytes sent on all connections."),
    "packet/out/bytes": (("output.bytes",), "Bytes that wait for a socket."),
    "heap/current": (("process.memory",), "Bytes of memory that the process takes; 0 if the system does not tell."),
    "heap/maximum": (("process.memory.max",), "The most bytes of memory that the process ever took."),
    "subscriptions/count": (("subscriptions.count",), "Subscriptions, shared ones included."),
    "shared_subscriptions/count": (("subscriptions.shared.count",), "Shared subscriptions."),
    "retained messages/count": (("retained.count",), "Retained messages."),
}


def _disconnected(figures: Figures) -> int:
    # the two may be read one after the other
    return max(0, figures["sessions.count"] - figures["connections.count"])


#: The topics whose value is not a sum.
DERIVED: Final[dict[str, tuple[Callable[[Figures], int], str]]] = {
    "clients/disconnected": (_disconnected, "Clients away whose session is kept."),
    "clients/inactive": (_disconnected, "Clients away whose session is kept; an old name."),
}

#: Events a minute, averaged: topics below `load/`, each followed by the window.
LOADS: Final[dict[str, tuple[str, str]]] = {
    "messages/received": ("packets.received", "Control packets received."),
    "messages/sent": ("packets.sent", "Control packets sent."),
    "publish/received": ("packets.publish.received", "PUBLISH packets received."),
    "publish/sent": ("packets.publish.sent", "PUBLISH packets sent."),
    "publish/dropped": ("delivery.dropped", "Deliveries dropped, for any reason."),
    "bytes/received": ("bytes.received", "Bytes received."),
    "bytes/sent": ("bytes.sent", "Bytes sent."),
    "sockets": ("connections.accepted", "Network connections accepted."),
    "connections": ("packets.connect.received", "CONNECT packets received."),
}

#: The counters that `Rates` must follow.
RATED: Final = tuple(name for name, _ in LOADS.values())


#: How often each limit acted, and what is lost by limits: topics below `limits/`, by the name of the counter.
LIMITS: Final[dict[str, str]] = {
    f"limits/{name.replace('.', '/')}": name
    for name in (
        *[kind.counter for kind in LimitKind],
        "overload.active",
        "connections.refused",
        "connections.failed",
        "connections.broken",
        "tls.handshakes.failed",
        "messages.retained.refused",
        *[
            reason.counter
            for reason in (
                DropReason.RATE_EXCEEDED,
                DropReason.PAYLOAD_TOO_LARGE,
                DropReason.RECEIVE_MAXIMUM,
                DropReason.STREAM_FULL,
                DropReason.SLOW_CONSUMER,
                DropReason.QUEUE_FULL,
                DropReason.OVERLOADED,
                DropReason.TOO_LARGE,
            )
        ],
    )
}


def sys_topics(
    version: str, uptime: float, figures: Figures, rates: Mapping[tuple[str, str], float]
) -> Iterator[tuple[str, bytes]]:
    """Every topic with its payload. `figures` holds the counters and the gauges; `uptime` is in seconds, and
    `rates` are events a minute, by counter and window."""
    yield PREFIX + "version", f"trunkline version {version}".encode()
    yield PREFIX + "uptime", b"%d seconds" % uptime
    for topic, (names, _) in TOTALS.items():
        yield PREFIX + topic, b"%d" % sum(figures[name] for name in names)
    for topic, name in LIMITS.items():
        yield PREFIX + topic, b"%d" % figures[name]
    for topic, (derive, _) in DERIVED.items():
        yield PREFIX + topic, b"%d" % derive(figures)
    for topic, (name, _) in LOADS.items():
        for window in WINDOWS:
            yield f"{PREFIX}load/{topic}/{window}", b"%.2f" % rates[name, window]


def changed(topics: Iterable[tuple[str, bytes]], published: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """Only payloads that differ from those published before, which are kept in `published`."""
    for topic, payload in topics:
        if published.get(topic) != payload:
            published[topic] = payload
            yield topic, payload
