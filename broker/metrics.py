"""What the broker counts: plain integers, so that the hot path does `metrics.messages_received += n` and no more.

Counters only grow, from the start of the node. Gauges are written into a `Gauges` when somebody asks, from what the parts
of the node know. Names are EMQX's where it counts the same thing. docs/metrics.md lists them all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from math import exp
from typing import Final


class DropReason(Enum):
    """Why a message did not go on. The value is the name of its counter: `messages.dropped.…` before it was routed,
    `delivery.dropped.…` on the way to one subscriber."""

    NO_SUBSCRIBERS = "messages.dropped.no_subscribers"
    NOT_AUTHORIZED = "messages.dropped.not_authorized"
    HOOK = "messages.dropped.hook"
    QUOTA = "messages.dropped.quota_exceeded"
    RECEIVE_MAXIMUM = "messages.dropped.receive_maximum"
    AWAIT_PUBREL_TIMEOUT = "messages.dropped.await_pubrel_timeout"

    NO_LOCAL = "delivery.dropped.no_local"
    READ_NOT_AUTHORIZED = "delivery.dropped.not_authorized"
    TOO_LARGE = "delivery.dropped.too_large"
    QOS0_NOT_STORED = "delivery.dropped.qos0_msg"
    QUEUE_FULL = "delivery.dropped.queue_full"
    EXPIRED = "delivery.dropped.expired"
    NOT_CONNECTED = "delivery.dropped.not_connected"
    SLOW_CONSUMER = "delivery.dropped.slow_consumer"
    DELIVERY_HOOK = "delivery.dropped.hook"


def counted(name: str, text: str) -> int:
    """A field: the name that it has outside, and what it counts."""
    return field(default=0, metadata={"name": name, "text": text})


@dataclass(slots=True)
class Metrics:
    """All counters of a node."""

    bytes_received: int = counted("bytes.received", "Bytes received on all connections.")
    bytes_sent: int = counted("bytes.sent", "Bytes sent on all connections.")
    connections_accepted: int = counted("connections.accepted", "Network connections accepted.")
    connections_refused: int = counted(
        "connections.refused", "Network connections closed at once: a limit was reached, or the address isn't allowed."
    )
    packets_received: int = counted("packets.received", "Control packets received, of any type.")
    packets_sent: int = counted("packets.sent", "Control packets sent, of any type.")
    packets_malformed: int = counted(
        "packets.malformed", "Packets that could not be decoded. Each ends its connection."
    )
    packets_connect_received: int = counted("packets.connect.received", "CONNECT packets received.")
    packets_connack_sent: int = counted("packets.connack.sent", "CONNACK packets sent.")
    packets_connack_error: int = counted("packets.connack.error", "CONNACK packets that refused the client.")
    packets_connack_auth_error: int = counted(
        "packets.connack.auth_error", "CONNACK packets that refused the client for its credentials."
    )
    packets_publish_received: int = counted("packets.publish.received", "PUBLISH packets received.")
    packets_publish_sent: int = counted("packets.publish.sent", "PUBLISH packets sent.")
    packets_publish_error: int = counted(
        "packets.publish.error", "PUBLISH packets received that could not be published."
    )
    packets_publish_auth_error: int = counted(
        "packets.publish.auth_error", "PUBLISH packets received that the access rules denied."
    )
    packets_publish_inuse: int = counted(
        "packets.publish.inuse", "PUBLISH packets received with a packet id that was in use."
    )
    packets_publish_dropped: int = counted(
        "packets.publish.dropped", "QoS 2 PUBLISH packets received beyond the limit of open ones."
    )
    packets_puback_received: int = counted("packets.puback.received", "PUBACK packets received.")
    packets_puback_sent: int = counted("packets.puback.sent", "PUBACK packets sent.")
    packets_puback_inuse: int = counted(
        "packets.puback.inuse", "PUBACK packets received for a packet id that waits for something else."
    )
    packets_puback_missed: int = counted("packets.puback.missed", "PUBACK packets received for an unknown packet id.")
    packets_pubrec_received: int = counted("packets.pubrec.received", "PUBREC packets received.")
    packets_pubrec_sent: int = counted("packets.pubrec.sent", "PUBREC packets sent.")
    packets_pubrec_inuse: int = counted(
        "packets.pubrec.inuse", "PUBREC packets received for a packet id that waits for something else."
    )
    packets_pubrec_missed: int = counted("packets.pubrec.missed", "PUBREC packets received for an unknown packet id.")
    packets_pubrel_received: int = counted("packets.pubrel.received", "PUBREL packets received.")
    packets_pubrel_sent: int = counted("packets.pubrel.sent", "PUBREL packets sent.")
    packets_pubrel_missed: int = counted("packets.pubrel.missed", "PUBREL packets received for an unknown packet id.")
    packets_pubcomp_received: int = counted("packets.pubcomp.received", "PUBCOMP packets received.")
    packets_pubcomp_sent: int = counted("packets.pubcomp.sent", "PUBCOMP packets sent.")
    packets_pubcomp_inuse: int = counted(
        "packets.pubcomp.inuse", "PUBCOMP packets received for a packet id that waits for something else."
    )
    packets_pubcomp_missed: int = counted(
        "packets.pubcomp.missed", "PUBCOMP packets received for an unknown packet id."
    )
    packets_subscribe_received: int = counted("packets.subscribe.received", "SUBSCRIBE packets received.")
    packets_subscribe_error: int = counted(
        "packets.subscribe.error", "SUBSCRIBE packets of which a filter was refused."
    )
    packets_subscribe_auth_error: int = counted(
        "packets.subscribe.auth_error", "SUBSCRIBE packets of which a filter was denied by the access rules."
    )
    packets_suback_sent: int = counted("packets.suback.sent", "SUBACK packets sent.")
    packets_unsubscribe_received: int = counted("packets.unsubscribe.received", "UNSUBSCRIBE packets received.")
    packets_unsubscribe_error: int = counted(
        "packets.unsubscribe.error", "UNSUBSCRIBE packets of which a filter had no subscription."
    )
    packets_unsuback_sent: int = counted("packets.unsuback.sent", "UNSUBACK packets sent.")
    packets_pingreq_received: int = counted("packets.pingreq.received", "PINGREQ packets received.")
    packets_pingresp_sent: int = counted("packets.pingresp.sent", "PINGRESP packets sent.")
    packets_disconnect_received: int = counted("packets.disconnect.received", "DISCONNECT packets received.")
    packets_disconnect_sent: int = counted("packets.disconnect.sent", "DISCONNECT packets sent.")
    packets_auth_received: int = counted("packets.auth.received", "AUTH packets received.")
    packets_auth_sent: int = counted("packets.auth.sent", "AUTH packets sent.")
    messages_received: int = counted("messages.received", "Messages received from clients.")
    messages_sent: int = counted("messages.sent", "Messages sent to clients.")
    messages_qos0_received: int = counted("messages.qos0.received", "QoS 0 messages received from clients.")
    messages_qos0_sent: int = counted("messages.qos0.sent", "QoS 0 messages sent to clients.")
    messages_qos1_received: int = counted("messages.qos1.received", "QoS 1 messages received from clients.")
    messages_qos1_sent: int = counted("messages.qos1.sent", "QoS 1 messages sent to clients.")
    messages_qos2_received: int = counted("messages.qos2.received", "QoS 2 messages received from clients.")
    messages_qos2_sent: int = counted("messages.qos2.sent", "QoS 2 messages sent to clients.")
    messages_bytes_received: int = counted(
        "messages.bytes.received", "Payload bytes of the messages received from clients."
    )
    messages_bytes_sent: int = counted("messages.bytes.sent", "Payload bytes of the messages sent to clients.")
    messages_publish: int = counted("messages.publish", "Messages routed, wills included and `$SYS` left out.")
    messages_delivered: int = counted(
        "messages.delivered", "Deliveries handed to sessions: a message counts once for each subscriber."
    )
    messages_acked: int = counted("messages.acked", "Deliveries acknowledged by their client.")
    messages_retained: int = counted("messages.retained", "Messages stored as retained.")
    messages_retained_refused: int = counted(
        "messages.retained.refused", "Retained messages that were not stored: a limit was reached."
    )
    messages_dropped: int = counted(
        "messages.dropped", "Messages dropped before they were routed to anybody, for any reason."
    )
    messages_dropped_no_subscribers: int = counted(
        "messages.dropped.no_subscribers", "Messages that nobody had subscribed to."
    )
    messages_dropped_not_authorized: int = counted(
        "messages.dropped.not_authorized", "Messages that the access rules denied."
    )
    messages_dropped_hook: int = counted("messages.dropped.hook", "Messages that a hook withheld.")
    messages_dropped_quota_exceeded: int = counted(
        "messages.dropped.quota_exceeded", "Messages beyond their publisher's quota."
    )
    messages_dropped_receive_maximum: int = counted(
        "messages.dropped.receive_maximum", "Messages beyond the receive maximum or the limit of open QoS 2 messages."
    )
    messages_dropped_await_pubrel_timeout: int = counted(
        "messages.dropped.await_pubrel_timeout", "QoS 2 messages whose PUBREL did not come in time."
    )
    delivery_dropped: int = counted(
        "delivery.dropped", "Deliveries dropped on the way to one subscriber, for any reason."
    )
    delivery_dropped_no_local: int = counted(
        "delivery.dropped.no_local", "Deliveries to the publisher itself under a subscription with no local."
    )
    delivery_dropped_not_authorized: int = counted(
        "delivery.dropped.not_authorized", "Deliveries that the access rules denied."
    )
    delivery_dropped_too_large: int = counted(
        "delivery.dropped.too_large", "Deliveries larger than their client takes."
    )
    delivery_dropped_qos0_msg: int = counted(
        "delivery.dropped.qos0_msg", "QoS 0 deliveries that would have had to wait where they are not stored."
    )
    delivery_dropped_queue_full: int = counted("delivery.dropped.queue_full", "Deliveries that a full queue lost.")
    delivery_dropped_expired: int = counted(
        "delivery.dropped.expired", "Deliveries that waited longer than their message expiry interval."
    )
    delivery_dropped_not_connected: int = counted(
        "delivery.dropped.not_connected", "Deliveries to a session that was ending."
    )
    delivery_dropped_slow_consumer: int = counted(
        "delivery.dropped.slow_consumer", "Deliveries to a client that did not read fast enough."
    )
    delivery_dropped_hook: int = counted("delivery.dropped.hook", "Deliveries that a hook withheld.")
    client_connect: int = counted("client.connect", "CONNECT packets looked at.")
    client_connack: int = counted("client.connack", "Clients answered with CONNACK.")
    client_connected: int = counted("client.connected", "Clients connected.")
    client_disconnected: int = counted("client.disconnected", "Clients disconnected, in whatever way.")
    client_authenticate: int = counted("client.authenticate", "Authentications asked for.")
    client_auth_anonymous: int = counted("client.auth.anonymous", "Clients connected without credentials.")
    client_authorize: int = counted("client.authorize", "Access decisions asked for.")
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
    session_terminated: int = counted("session.terminated", "Sessions ended, for any reason.")
    authentication_success: int = counted("authentication.success", "Authentications that succeeded.")
    authentication_success_anonymous: int = counted(
        "authentication.success.anonymous", "Authentications that succeeded without credentials."
    )
    authentication_failure: int = counted("authentication.failure", "Authentications that failed.")
    authorization_allow: int = counted("authorization.allow", "Access decisions that allowed.")
    authorization_deny: int = counted("authorization.deny", "Access decisions that denied.")
    authorization_superuser: int = counted(
        "authorization.superuser", "Access decisions that allowed a superuser without a look at the rules."
    )
    authorization_cache_hit: int = counted(
        "authorization.cache_hit", "Access decisions answered from the connection's cache."
    )
    authorization_cache_miss: int = counted(
        "authorization.cache_miss", "Access decisions that were not in the connection's cache."
    )
    hooks_failed: int = counted("hooks.failed", "Hook callbacks that raised an error.")

    def drop(self, reason: DropReason, count: int = 1) -> None:
        """Count dropped messages under their reason and in the total that it belongs to."""
        name, total = _DROP_FIELDS[reason]
        setattr(self, name, getattr(self, name) + count)
        setattr(self, total, getattr(self, total) + count)

    def snapshot(self) -> dict[str, int]:
        return {name: getattr(self, attribute) for attribute, name in _COUNTERS.items()}


@dataclass(slots=True)
class Gauges:
    """How things stand. One object for a node, which writes into it before somebody reads."""

    connections_count: int = counted("connections.count", "Clients connected.")
    connections_max: int = counted("connections.max", "The most clients seen connected at once.")
    sessions_count: int = counted("sessions.count", "Sessions, connected or not.")
    sessions_max: int = counted("sessions.max", "The most sessions seen at once.")
    subscriptions_count: int = counted("subscriptions.count", "Subscriptions, shared ones included.")
    subscriptions_shared_count: int = counted("subscriptions.shared.count", "Shared subscriptions.")
    topics_count: int = counted("topics.count", "Different topic filters subscribed to.")
    retained_count: int = counted("retained.count", "Retained messages.")
    retained_bytes: int = counted("retained.bytes", "Payload bytes of the retained messages.")
    queue_count: int = counted("queue.count", "Messages that wait in the queues of sessions.")
    queue_bytes: int = counted("queue.bytes", "Bytes of the messages that wait in the queues of sessions.")
    inflight_count: int = counted("inflight.count", "Messages sent and not yet acknowledged.")
    awaiting_rel_count: int = counted("awaiting_rel.count", "QoS 2 messages received whose PUBREL is still to come.")

    def note_maxima(self) -> None:
        """Raise the maxima to what was written; the ones seen are those of the moments when this is called."""
        self.connections_max = max(self.connections_max, self.connections_count)
        self.sessions_max = max(self.sessions_max, self.sessions_count)

    def snapshot(self) -> dict[str, int]:
        return {name: getattr(self, attribute) for attribute, name in _GAUGES.items()}


def described(kind: type[Metrics] | type[Gauges]) -> dict[str, str]:
    """Every name of a kind, with what it counts."""
    return {f.metadata["name"]: f.metadata["text"] for f in fields(kind)}


_COUNTERS: Final[dict[str, str]] = {f.name: f.metadata["name"] for f in fields(Metrics)}
_GAUGES: Final[dict[str, str]] = {f.name: f.metadata["name"] for f in fields(Gauges)}
_DROP_FIELDS: Final = {
    reason: (reason.value.replace(".", "_"), "_".join(reason.value.split(".")[:2])) for reason in DropReason
}

#: Seconds over which a rate is averaged, by the name that it has in `$SYS` topics.
WINDOWS: Final = {"1min": 60.0, "5min": 300.0, "15min": 900.0}


class Rates:
    """How fast counters grow: events a minute, averaged over the last one, five and fifteen minutes.

    Exponential smoothing, as a system's load average: one number a window and no history. What happened a window ago
    counts with 1/e, and the figure is right however irregularly it is updated.
    """

    __slots__ = ("_averages", "_last", "_updated_at")

    def __init__(self, names: Iterable[str], now: float) -> None:
        self._last = dict.fromkeys(names, 0)
        self._averages = {(name, window): 0.0 for name in self._last for window in WINDOWS}
        self._updated_at = now

    def update(self, counters: Mapping[str, int], now: float) -> None:
        """Take in how the counters stand now."""
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
