"""The section about listeners that speak NATS."""

from trunkline.config.section import Section, key
from trunkline.config.units import Duration, Size, Whole


class NatsSettings(Section):
    """What holds at listeners that speak [NATS](nats-listener.md), besides the limits for all clients."""

    max_payload: Size = key(
        1_048_576,
        "Largest message with its headers; clients are told, and one that sends a larger one is disconnected. "
        "`mqtt.max_payload_size` holds as well.",
        "bytes",
        ge=1,
        le=67_108_864,
    )
    max_control_line: Size = key(
        4096,
        "Longest line of a client, which has its subjects or its CONNECT. A client that sends a longer one is "
        "disconnected.",
        "bytes",
        ge=128,
        le=1_048_576,
    )
    max_pending: Size = key(
        67_108_864,
        "Bytes that may wait for a client that does not read them; a client for which more waits is disconnected. "
        "Publishers are slowed before that, as `session.backpressure` says.",
        "bytes",
        ge=65_536,
    )
    max_streams: Whole = key(
        1000,
        "Streams that there may be when a client makes one more by JetStream's API. 0 is no limit.",
        "streams",
        ge=0,
    )
    max_consumers: Whole = key(
        1000,
        "Consumers that a stream may have when a client makes one more by JetStream's API. 0 is no limit.",
        "consumers",
        ge=0,
    )
    ping_interval: Duration = key(
        120.0, "The time after which a client that has sent nothing is sent a PING.", "seconds", gt=0
    )
    max_pings: Whole = key(2, "PINGs that a client may leave unanswered. One more disconnects it.", "PINGs", ge=1)
