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
    """Why a message was dropped. The value is the name of its counter: `messages.dropped.…` before it was routed,
    `delivery.dropped.…` on the way to one subscriber."""

    NO_SUBSCRIBERS = "messages.dropped.no_subscribers"
    NOT_AUTHORIZED = "messages.dropped.not_authorized"
    HOOK = "messages.dropped.hook"
    RECEIVE_MAXIMUM = "messages.dropped.receive_maximum"
    UNRELEASED = "messages.dropped.session_ended"
    AWAIT_REL_TIMEOUT = "messages.dropped.await_rel_timeout"
    PAYLOAD_TOO_LARGE = "messages.dropped.payload_too_large"

    READ_NOT_AUTHORIZED = "delivery.dropped.not_authorized"
    TOO_LARGE = "delivery.dropped.too_large"
    UNWRITABLE = "delivery.dropped.unwritable"
    QOS0_NOT_STORED = "delivery.dropped.qos0_msg"
    QUEUE_FULL = "delivery.dropped.queue_full"
    SLOW_CONSUMER = "delivery.dropped.slow_consumer"
    NO_LOCAL = "delivery.dropped.no_local"
    SESSION_ENDED = "delivery.dropped.session_ended"
    EXPIRED = "delivery.dropped.expired"
    DELIVERY_HOOK = "delivery.dropped.hook"
    REFUSED = "delivery.dropped.refused"
    #: Not lost: another member of its shared group gets it.
    REDISPATCHED = "delivery.redispatched"

    @property
    def word(self) -> str:
        """The reason alone, as in hooks and logs."""
        return self.value.rpartition(".")[2]


def counted(name: str, text: str) -> int:
    """A field with its external name and its description."""
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

    bytes_received: int = counted("bytes.received", "Bytes received on all connections.")
    bytes_sent: int = counted("bytes.sent", "Bytes sent on all connections.")
    connections_accepted: int = counted("connections.accepted", "Network connections accepted.")
    connections_refused: int = counted(
        "connections.refused", "Network connections closed at once: a limit was reached, or the address is not allowed."
    )
    connections_failed: int = counted("connections.failed", "Network connections that failed while they were accepted.")
    loop_blocked: int = counted(
        "loop.blocked", "Times that something blocked the broker for longer than `node.watchdog`."
    )
    callbacks_crashed: int = counted(
        "callbacks.crashed",
        "Errors in work that belongs to no single client, such as accepting connections.",
    )
    packets_malformed: int = counted(
        "packets.malformed", "Packets that could not be decoded. Each ends its connection."
    )
    packets_connack_error: int = counted("packets.connack.error", "CONNACK packets that refused the client.")
    packets_connack_auth_error: int = counted(
        "packets.connack.auth_error", "CONNACK packets that refused the client for its credentials."
    )
    packets_subscribe_error: int = counted("packets.subscribe.error", "Filters of SUBSCRIBE packets that were refused.")
    packets_subscribe_auth_error: int = counted(
        "packets.subscribe.auth_error", "Filters of SUBSCRIBE packets that the access rules denied."
    )
    messages_acked: int = counted("messages.acked", "Deliveries acknowledged by their client.")
    messages_retained: int = counted("messages.retained", "Messages stored as retained.")
    messages_retained_cut: int = counted(
        "messages.retained.cut", "Subscriptions whose retained messages were not all sent when the connection ended."
    )
    messages_retained_refused: int = counted(
        "messages.retained.refused", "Retained messages that were not stored: a limit was reached."
    )
    messages_dropped: int = counted(
        "messages.dropped", "Messages dropped before they were routed to any session, for any reason."
    )
    messages_dropped_no_subscribers: int = counted(
        "messages.dropped.no_subscribers", "Messages without any subscription that matches."
    )
    messages_dropped_not_authorized: int = counted(
        "messages.dropped.not_authorized", "Messages that the access rules denied."
    )
    messages_dropped_hook: int = counted("messages.dropped.hook", "Messages that a hook withheld.")
    messages_dropped_receive_maximum: int = counted(
        "messages.dropped.receive_maximum", "QoS 2 messages beyond the limit of those without PUBREL."
    )
    messages_dropped_session_ended: int = counted(
        "messages.dropped.session_ended",
        "QoS 2 messages whose PUBREL had not come when their publisher's session ended.",
    )
    messages_dropped_await_rel_timeout: int = counted(
        "messages.dropped.await_rel_timeout", "QoS 2 messages whose PUBREL had not come in time."
    )
    messages_dropped_payload_too_large: int = counted(
        "messages.dropped.payload_too_large", "Messages with a payload above `mqtt.max_payload_size`."
    )
    delivery_dropped: int = counted(
        "delivery.dropped", "Deliveries dropped on the way to one subscriber, for any reason."
    )
    delivery_dropped_not_authorized: int = counted(
        "delivery.dropped.not_authorized", "Deliveries that the access rules denied."
    )
    delivery_dropped_too_large: int = counted(
        "delivery.dropped.too_large", "Deliveries above their client's maximum packet size."
    )
    delivery_dropped_unwritable: int = counted(
        "delivery.dropped.unwritable", "Deliveries that could not be encoded for their client."
    )
    delivery_dropped_qos0_msg: int = counted(
        "delivery.dropped.qos0_msg", "QoS 0 deliveries that would have to wait, with `session.store_qos0` off."
    )
    delivery_dropped_queue_full: int = counted(
        "delivery.dropped.queue_full", "Deliveries that a full queue dropped while its client was away."
    )
    delivery_dropped_slow_consumer: int = counted(
        "delivery.dropped.slow_consumer", "Deliveries that a full queue dropped while its client was connected."
    )
    delivery_dropped_no_local: int = counted(
        "delivery.dropped.no_local", "A client's own messages that its subscription excludes by no local."
    )
    delivery_dropped_session_ended: int = counted(
        "delivery.dropped.session_ended", "Deliveries that waited or were unacknowledged when their session ended."
    )
    delivery_dropped_expired: int = counted(
        "delivery.dropped.expired", "Deliveries that waited longer than their message expiry interval."
    )
    delivery_dropped_hook: int = counted("delivery.dropped.hook", "Deliveries that a hook withheld.")
    delivery_dropped_refused: int = counted(
        "delivery.dropped.refused", "Deliveries that their client refused: its PUBACK or PUBREC named a failure."
    )
    delivery_redispatched: int = counted(
        "delivery.redispatched", "Deliveries that went to another member of a shared group when a session ended."
    )
    client_connected: int = counted("client.connected", "Clients connected.")
    client_disconnected: int = counted("client.disconnected", "Clients disconnected, for any reason.")
    client_subscribe: int = counted("client.subscribe", "Filters subscribed to.")
    client_unsubscribe: int = counted("client.unsubscribe", "Filters unsubscribed from.")
    session_created: int = counted("session.created", "Sessions created.")
    session_resumed: int = counted("session.resumed", "Sessions resumed by their client.")
    session_takenover: int = counted(
        "session.takenover", "Sessions taken over from another connection with the same client id."
    )
    session_discarded: int = counted(
        "session.discarded", "Sessions discarded because their client asked for a clean start."
    )
    session_expired: int = counted("session.expired", "Sessions that ended because their client stayed away too long.")
    session_crashed: int = counted("session.crashed", "Sessions ended by an error in the broker, a hook or a plugin.")
    session_terminated: int = counted("session.terminated", "Sessions ended, for any reason.")
    authentication_success: int = counted("authentication.success", "Clients that logged in.")
    authentication_success_anonymous: int = counted(
        "authentication.success.anonymous", "Clients that connected without credentials."
    )
    authentication_failure: int = counted("authentication.failure", "Clients refused for their credentials.")
    authorization_allow: int = counted(
        "authorization.allow", "Access decisions that allowed. Decisions that a connection remembers do not count."
    )
    authorization_deny: int = counted("authorization.deny", "Access decisions that denied.")

    def drop(self, reason: DropReason, count: int = 1) -> None:
        """Count dropped messages under their reason and in the total that it belongs to, if it has one."""
        for name in _DROP_FIELDS[reason]:
            setattr(self, name, getattr(self, name) + count)

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
        return figures | {name: getattr(self, attribute) for attribute, name in _COUNTERS.items()}


@dataclass(slots=True, eq=False, repr=False)  # with so many fields they take long to generate
class Gauges:
    """The current state of the node, in one object that is updated before it is read."""

    connections_count: int = counted("connections.count", "Clients connected.")
    connections_max: int = counted("connections.max", "The most clients seen connected at once.")
    sessions_count: int = counted("sessions.count", "Sessions, connected or not.")
    sessions_max: int = counted("sessions.max", "The most sessions seen at once.")
    subscriptions_count: int = counted("subscriptions.count", "Subscriptions, shared ones included.")
    subscriptions_shared_count: int = counted("subscriptions.shared.count", "Shared subscriptions.")
    topics_count: int = counted("topics.count", "Different topic filters subscribed to.")
    retained_count: int = counted("retained.count", "Retained messages.")
    retained_bytes: int = counted(
        "retained.bytes", "Bytes that the retained messages take, roughly, without those of `$SYS`."
    )
    queue_count: int = counted("queue.count", "Messages that wait in the queues of sessions.")
    queue_bytes: int = counted("queue.bytes", "Bytes of the messages that wait in the queues of sessions.")
    inflight_count: int = counted("inflight.count", "Messages sent and not yet acknowledged.")
    awaiting_rel_count: int = counted("awaiting_rel.count", "QoS 2 messages received whose PUBREL is still to come.")
    output_bytes: int = counted("output.bytes", "Bytes that wait for a socket.")
    process_memory: int = counted(
        "process.memory", "Bytes of memory that the process takes; 0 if the system does not tell."
    )
    process_memory_max: int = counted("process.memory.max", "The most bytes of memory that the process ever took.")

    def note_maxima(self) -> None:
        """Raise the maxima to the current values. Only values at the time of a call are seen."""
        self.connections_max = max(self.connections_max, self.connections_count)
        self.sessions_max = max(self.sessions_max, self.sessions_count)

    def snapshot(self) -> dict[str, int]:
        return {name: getattr(self, attribute) for attribute, name in _GAUGES.items()}


def described(kind: type[Metrics] | type[Gauges]) -> dict[str, str]:
    """Every name of a kind, with its description."""
    return (_LISTED if kind is Metrics else {}) | {
        f.metadata["name"]: f.metadata["text"] for f in fields(kind) if f.metadata
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
_COUNTERS: Final[dict[str, str]] = {f.name: f.metadata["name"] for f in fields(Metrics) if f.metadata}
_GAUGES: Final[dict[str, str]] = {f.name: f.metadata["name"] for f in fields(Gauges)}
_DROP_FIELDS: Final = {
    reason: {reason.value.replace(".", "_"), "_".join(reason.value.split(".")[:2])} for reason in DropReason
}

#: Seconds over which a rate is averaged, by the name used in `$SYS` topics.
WINDOWS: Final = {"1min": 60.0, "5min": 300.0, "15min": 900.0}


class Rates:
    """How fast counters grow: events a minute, averaged over the last one, five and fifteen minutes.

    Exponential smoothing, as a system's load average: one number a window and no history. Events a window ago count
    with a factor of 1/e, and irregular updates do not distort the rate.
    """

    __slots__ = ("_averages", "_last", "_updated_at")

    def __init__(self, names: Iterable[str], now: float) -> None:
        self._last = dict.fromkeys(names, 0)
        self._averages = {(name, window): 0.0 for name in self._last for window in WINDOWS}
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
                self._averages[key] = rate + decay * (self._averages[key] - rate)

    def __getitem__(self, key: tuple[str, str]) -> float:
        """The average of a counter over a window, such as `rates["bytes.sent", "5min"]`."""
        return self._averages[key]
