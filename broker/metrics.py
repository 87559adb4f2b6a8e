"""The broker's metrics: plain integers, so that the hot path does `metrics.messages_received += n` and no more.

Counters only grow, from the start of the node. Gauges are computed on request and written into a `Gauges`. Names are
EMQX's where it counts the same thing. docs/metrics.md lists them all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from math import exp
from typing import Final

from trunkline.mqtt.packets import PacketType


class DropReason(Enum):
    """Why a message was dropped, and how that is counted: `messages.dropped.…` before it was routed,
    `delivery.dropped.…` on the way to one subscriber."""

    NO_SUBSCRIBERS = "messages.dropped.no_subscribers", "Messages without any subscription that matches."
    NOT_AUTHORIZED = "messages.dropped.not_authorized", "Messages that the access rules denied."
    HOOK = "messages.dropped.hook", "Messages that a hook withheld."
    RECEIVE_MAXIMUM = "messages.dropped.receive_maximum", "QoS 2 messages beyond the limit of those without PUBREL."
    UNRELEASED = (
        "messages.dropped.session_ended",
        "QoS 2 messages whose PUBREL had not come when their publisher's session ended.",
    )
    AWAIT_REL_TIMEOUT = "messages.dropped.await_rel_timeout", "QoS 2 messages whose PUBREL had not come in time."
    PAYLOAD_TOO_LARGE = "messages.dropped.payload_too_large", "Messages with a payload above `mqtt.max_payload_size`."
    STREAM_FULL = "messages.dropped.stream_full", "Messages that a stream refused: full, sealed, or too large for it."
    WRONG_LAST = (
        "messages.dropped.wrong_last",
        "Messages of NATS clients that expected another stream, or another last message in it.",
    )

    RATE_EXCEEDED = (
        "messages.dropped.rate_exceeded",
        'Messages beyond a rate limit with `over = "refuse"`.',
    )

    READ_NOT_AUTHORIZED = "delivery.dropped.not_authorized", "Deliveries that the access rules denied."
    TOO_LARGE = "delivery.dropped.too_large", "Deliveries above their client's maximum packet size."
    UNWRITABLE = "delivery.dropped.unwritable", "Deliveries that could not be encoded for their client."
    QOS0_NOT_STORED = (
        "delivery.dropped.qos0_msg",
        "QoS 0 deliveries that would have to wait, with `session.store_qos0` off.",
    )
    QUEUE_FULL = (
        "delivery.dropped.queue_full",
        "Deliveries that a full queue dropped while its client was away, or that would have been published once more.",
    )
    SLOW_CONSUMER = (
        "delivery.dropped.slow_consumer",
        "Deliveries that a full queue dropped while its client was connected.",
    )
    OVERLOADED = (
        "delivery.dropped.overloaded",
        "QoS 0 deliveries that would have to wait while the broker is overloaded.",
    )
    NO_LOCAL = "delivery.dropped.no_local", "A client's own messages that its subscription excludes by no local."
    SESSION_ENDED = (
        "delivery.dropped.session_ended",
        "Deliveries that waited or were unacknowledged when their session ended.",
    )
    UNSUBSCRIBED = (
        "delivery.dropped.unsubscribed",
        "Deliveries that waited in the store when the subscription that they came by was ended.",
    )
    EXPIRED = "delivery.dropped.expired", "Deliveries that waited longer than their message expiry interval."
    DELIVERY_HOOK = "delivery.dropped.hook", "Deliveries that a hook withheld."
    REFUSED = "delivery.dropped.refused", "Deliveries that their client refused: its PUBACK or PUBREC named a failure."
    #: Not lost: another member of its shared group gets it.
    REDISPATCHED = (
        "delivery.redispatched",
        "Deliveries that went to another member of a shared group when a session ended.",
    )

    def __init__(self, counter: str, text: str) -> None:
        self.counter = counter
        self.text = text
        #: The reason alone, as in hooks and logs.
        self.word = counter.rpartition(".")[2]


class LimitKind(Enum):
    """Which limit acted. Every counter is how often. The last value says what it acts for, which is a client by
    default."""

    # these have a line of their own in the log
    NODE_FULL = "connections.refused.node", "Network connections refused by `limits.max_connections`.", "host"
    LISTENER_FULL = (
        "connections.refused.listener",
        "Network connections refused by the `max_connections` of a listener.",
        "host",
    )
    ADDRESS_FULL = (
        "connections.refused.address",
        "Network connections refused by the `max_connections_per_address` of a listener.",
        "host",
    )
    ACCESS_RULES = (
        "connections.refused.rules",
        "Network connections refused by the `access_rules` of a listener.",
        "host",
    )
    NODE_CONNECTIONS = (
        "rate.node.connections",
        "Times that new connections had to wait for `rate.connections`.",
        "listener",
    )
    NODE_MESSAGES = "rate.node.messages", "Times that `rate.messages` paused a connection or refused messages."
    NODE_BYTES = "rate.node.bytes", "Times that `rate.bytes` paused a connection or refused messages."
    LISTENER_CONNECTIONS = (
        "rate.listener.connections",
        "Times that new connections had to wait for a listener's `rate.connections`.",
        "listener",
    )
    LISTENER_MESSAGES = (
        "rate.listener.messages",
        "Times that a listener's `rate.messages` paused a connection or refused messages.",
    )
    LISTENER_BYTES = (
        "rate.listener.bytes",
        "Times that a listener's `rate.bytes` paused a connection or refused messages.",
    )
    CLIENT_CONNECTIONS = "rate.client.connections", "Clients refused by `client_connections`."
    CLIENT_MESSAGES = "rate.client.messages", "Times that `client_messages` paused a connection or refused messages."
    CLIENT_BYTES = "rate.client.bytes", "Times that `client_bytes` paused a connection or refused messages."
    CONNECTION_MESSAGES = (
        "rate.connection.messages",
        "Times that `connection_messages` paused a connection or refused messages.",
    )
    CONNECTION_BYTES = (
        "rate.connection.bytes",
        "Times that `connection_bytes` paused a connection or refused messages.",
    )
    SLOW_PACKETS = (
        "rate.connection.slow",
        "Clients disconnected because a packet took longer than `mqtt.packet_timeout`.",
    )
    CONNECT_TIMEOUT = "connections.timeout", "Connections without a CONNECT in `mqtt.connect_timeout`.", "host"
    OUTPUT = "connections.output", "Times that a client was not read from because it did not read 1 MiB of answers."
    NATS_PENDING = "nats.slow_consumers", "NATS clients disconnected because `nats.max_pending` bytes waited for them."
    SESSIONS_FULL = "client.refused.max_sessions", "Clients refused by `limits.max_sessions`."
    FLAPPING = "client.refused.flapping", "Clients refused by `flapping.max_takeovers`."
    BACKPRESSURE = "backpressure.publishers", "Times that a publisher was not read from for a slow subscriber."
    OVERLOAD_MEMORY = "overload.memory", "Clients refused because memory was above `overload.memory_high`."
    OVERLOAD_LAG = "overload.lag", "Clients refused because the event loop was later than `overload.lag_high`."
    OVERLOAD_FILES = "overload.files", "Clients refused because open files were above `overload.files_high`."
    UNCOMMITTED = "client.refused.uncommitted", "Clients refused by `store.max_uncommitted_bytes`."
    UNCOMMITTED_PUBLISHERS = (
        "uncommitted.publishers",
        "Times that a publisher was not read from because half of `store.max_uncommitted_bytes` waited.",
    )
    OVERLOAD_PUBLISHERS = "overload.publishers", "Times that a publisher was not read from because of overload."

    def __init__(self, counter: str, text: str, noun: str = "client") -> None:
        self.counter = counter
        self.text = text
        self.noun = noun


#: Drops that are counted together, and what their sum is.
_TOTALS: Final = {
    "messages.dropped": "Messages dropped before they were routed to any session, for any reason.",
    "delivery.dropped": "Deliveries dropped on the way to one subscriber, for any reason.",
}


def counted(text: str, name: str = "") -> int:
    """A field with its description and its external name; by default that is its own name with dots."""
    return field(default=0, metadata={"name": name, "text": text})


@dataclass(slots=True, eq=False, repr=False)  # with so many fields they take long to generate
class Metrics:
    """All counters of a node. Those of packets and of messages by QoS are lists, for the hot path."""

    #: Control packets by `PacketType`.
    received: list[int] = field(default_factory=lambda: [0] * 16)
    sent: list[int] = field(default_factory=lambda: [0] * 16)
    #: Messages from and to clients by QoS.
    messages_in: list[int] = field(default_factory=lambda: [0] * 3)
    messages_out: list[int] = field(default_factory=lambda: [0] * 3)
    dropped: dict[DropReason, int] = field(default_factory=lambda: dict.fromkeys(DropReason, 0))
    limited: dict[LimitKind, int] = field(default_factory=lambda: dict.fromkeys(LimitKind, 0))

    bytes_received: int = counted("Bytes received on all connections.")
    bytes_sent: int = counted("Bytes sent on all connections.")
    connections_accepted: int = counted("Network connections accepted.")
    connections_refused: int = counted(
        "Network connections closed at once: a limit was reached, or the address is not allowed."
    )
    connections_failed: int = counted("Network connections that failed while they were accepted.")
    connections_broken: int = counted(
        "Network connections closed for an error below MQTT: in the PROXY protocol, TLS or WebSocket."
    )
    tls_handshakes: int = counted("TLS handshakes completed.")
    tls_handshakes_failed: int = counted("TLS handshakes that failed, or took too long.", "tls.handshakes.failed")
    loop_blocked: int = counted("Times that something blocked the broker for longer than `node.watchdog`.")
    callbacks_crashed: int = counted("Errors in work that belongs to no single client, such as accepting connections.")
    packets_malformed: int = counted("Packets that could not be decoded. Each ends its connection.")
    packets_connack_error: int = counted("CONNACK packets that refused the client.")
    packets_connack_auth_error: int = counted(
        "CONNACK packets that refused the client for its credentials.", "packets.connack.auth_error"
    )
    packets_subscribe_error: int = counted("Filters of SUBSCRIBE packets that were refused.")
    packets_subscribe_auth_error: int = counted(
        "Filters of SUBSCRIBE packets that the access rules denied.", "packets.subscribe.auth_error"
    )
    messages_acked: int = counted("Deliveries acknowledged by their client.")
    messages_retained: int = counted("Messages stored as retained, without those of `$SYS`.")
    messages_retained_cut: int = counted(
        "Subscriptions whose retained messages were not all sent when the connection ended."
    )
    messages_retained_refused: int = counted("Retained messages that were not stored: a limit was reached.")
    client_connected: int = counted("Clients connected.")
    client_disconnected: int = counted("Clients disconnected, for any reason.")
    client_subscribe: int = counted("Filters subscribed to.")
    client_unsubscribe: int = counted("Filters unsubscribed from.")
    session_created: int = counted("Sessions created.")
    session_resumed: int = counted("Sessions resumed by their client.")
    session_takenover: int = counted("Sessions taken over from another connection with the same client id.")
    session_discarded: int = counted("Sessions discarded because their client asked for a clean start.")
    session_expired: int = counted("Sessions that ended because their client stayed away too long.")
    session_crashed: int = counted("Sessions ended by an error in the broker, a hook or a plugin.")
    session_terminated: int = counted("Sessions ended, for any reason.")
    authentication_success: int = counted("Clients that logged in.")
    authentication_success_anonymous: int = counted("Clients that connected without credentials.")
    authentication_failure: int = counted("Clients refused for their credentials.")
    authorization_allow: int = counted(
        "Access decisions that allowed. Decisions that a connection remembers do not count."
    )
    authorization_deny: int = counted("Access decisions that denied.")
    store_commits: int = counted("Commits to the store.")
    store_commits_failed: int = counted("Commits that the store refused. Each is tried again.")
    store_commits_microseconds: int = counted("Microseconds that commits took, in all.")
    store_commits_rows: int = counted("Rows that commits wrote or deleted.")
    store_commits_bytes: int = counted("Bytes of the rows that commits wrote.")

    def snapshot(self) -> dict[str, int]:
        """Every counter by its name, totals included."""
        # PUBLISH packets, which the hot path counts by QoS, need not be counted by packet type too
        self.received[PacketType.PUBLISH] = sum(self.messages_in)
        self.sent[PacketType.PUBLISH] = sum(self.messages_out)
        figures = {"packets.received": sum(self.received), "packets.sent": sum(self.sent)}
        for kind in PacketType:
            if kind is not PacketType.WILL:
                figures[f"packets.{kind.name.lower()}.received"] = self.received[kind]
                figures[f"packets.{kind.name.lower()}.sent"] = self.sent[kind]
        figures |= {"messages.received": sum(self.messages_in), "messages.sent": sum(self.messages_out)}
        for qos in range(3):
            figures[f"messages.qos{qos}.received"] = self.messages_in[qos]
            figures[f"messages.qos{qos}.sent"] = self.messages_out[qos]
        figures |= {name: getattr(self, attribute) for attribute, (name, _) in _COUNTERS.items()}
        drops = {reason.counter: count for reason, count in self.dropped.items()}
        totals = {total: sum(drops[name] for name in drops if name.startswith(f"{total}.")) for total in _TOTALS}
        return figures | totals | drops | {kind.counter: count for kind, count in self.limited.items()}


@dataclass(slots=True, eq=False, repr=False)  # with so many fields they take long to generate
class Gauges:
    """The current state of the node, in one object that is updated before it is read."""

    connections_count: int = counted("Clients connected.")
    connections_max: int = counted("The most clients seen connected at once.")
    sessions_count: int = counted("Sessions, connected or not.")
    sessions_max: int = counted("The most sessions seen at once.")
    subscriptions_count: int = counted("Subscriptions, shared ones included.")
    subscriptions_shared_count: int = counted("Shared subscriptions.")
    topics_count: int = counted("Different topic filters subscribed to.")
    retained_count: int = counted("Retained messages, without those of `$SYS`.")
    retained_bytes: int = counted("Bytes that the retained messages take, roughly, without those of `$SYS`.")
    queue_count: int = counted("Messages that wait in the queues of sessions.")
    queue_bytes: int = counted("Bytes of the messages that wait in the queues of sessions.")
    inflight_count: int = counted("Messages sent and not yet acknowledged.")
    awaiting_rel_count: int = counted("QoS 2 messages received whose PUBREL is still to come.", "awaiting_rel.count")
    output_bytes: int = counted("Bytes that wait for a socket.")
    store_bytes: int = counted("Bytes of the store on the disk, with its log.")
    store_uncommitted_bytes: int = counted("Bytes of memory, roughly, that wait for the store.")
    store_waiting: int = counted(
        "Publications, each a message or a burst of them, and other steps of clients that wait for the store."
    )
    process_memory: int = counted("Bytes of memory that the process takes; 0 if the system does not tell.")
    process_memory_max: int = counted("The most bytes of memory that the process ever took.")

    process_files: int = counted("Open file descriptors; 0 if the system does not tell.")
    process_files_limit: int = counted("Descriptors that the process may have; 0 if the system does not tell.")
    overload_active: int = counted("Marks of `[overload]` that are exceeded.")
    loop_lag_microseconds: int = counted(
        "Microseconds that the event loop is late, as measured every `overload.interval`.", "loop.lag.microseconds"
    )

    def note_maxima(self) -> None:
        """Raise the maxima to the current values. Only values at the time of a call are seen."""
        self.connections_max = max(self.connections_max, self.connections_count)
        self.sessions_max = max(self.sessions_max, self.sessions_count)

    def snapshot(self) -> dict[str, int]:
        return {name: getattr(self, attribute) for attribute, (name, _) in _GAUGES.items()}


def described(kind: type[Metrics] | type[Gauges]) -> dict[str, str]:
    """Every name of a kind, with its description."""
    if kind is Gauges:
        return dict(_GAUGES.values())
    return (
        _LISTED | dict(_COUNTERS.values()) | _TOTALS | {each.counter: each.text for each in (*DropReason, *LimitKind)}
    )


def _fields(kind: type[Metrics] | type[Gauges]) -> dict[str, tuple[str, str]]:
    """External names and descriptions by attribute."""
    return {
        f.name: (f.metadata["name"] or f.name.replace("_", "."), f.metadata["text"]) for f in fields(kind) if f.metadata
    }


_LISTED: Final[dict[str, str]] = {
    "packets.received": "Control packets received, of any type.",
    "packets.sent": "Control packets sent, of any type.",
    **{
        f"packets.{kind.name.lower()}.{way}": f"{kind.name} packets {way}."
        for kind in PacketType
        if kind is not PacketType.WILL
        for way in ("received", "sent")
    },
    "messages.received": "Messages received from clients.",
    "messages.sent": "Messages sent to clients.",
    **{
        f"messages.qos{qos}.{way}": f"QoS {qos} messages {way} {whom} clients."
        for qos in range(3)
        for way, whom in (("received", "from"), ("sent", "to"))
    },
}
_COUNTERS: Final = _fields(Metrics)
_GAUGES: Final = _fields(Gauges)

#: Seconds over which a rate is averaged, by the name used in `$SYS` topics.
WINDOWS: Final = {"1min": 60.0, "5min": 300.0, "15min": 900.0}


class Rates:
    """How fast counters grow: events a minute, averaged over the last one, five and fifteen minutes.

    Exponential smoothing, as a system's load average: one number a window and no history. Events a window ago count
    with a factor of 1/e, and irregular updates do not distort the rate.
    """

    __slots__ = ("_last", "_updated_at", "averages")

    def __init__(self, names: Iterable[str], now: float) -> None:
        self._last = dict.fromkeys(names, 0)
        #: By counter and window.
        self.averages = {(name, window): 0.0 for name in self._last for window in WINDOWS}
        self._updated_at = now

    def update(self, counters: Mapping[str, int], now: float) -> None:
        """Update the rates from the counters' current values."""
        elapsed = now - self._updated_at
        if elapsed <= 0:
            return
        self._updated_at = now
        decays = {window: exp(-elapsed / seconds) for window, seconds in WINDOWS.items()}
        for name, last in self._last.items():
            value = self._last[name] = counters[name]
            rate = (value - last) * 60.0 / elapsed
            for window, decay in decays.items():
                key = name, window
                self.averages[key] = rate + decay * (self.averages[key] - rate)

    def __getitem__(self, key: tuple[str, str]) -> float:
        """The average of a counter over a window, such as `rates["bytes.sent", "5min"]`."""
        return self.averages[key]
