"""What the broker counts."""

from enum import Enum


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
