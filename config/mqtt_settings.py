"""The sections about MQTT: what clients may do, what is kept for them, and their limits, in general and by zone."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from trunkline.config.section import Section, key
from trunkline.config.units import (
    Duration,
    Expiry,
    Flag,
    Number,
    OptionalDuration,
    OptionalSize,
    Over,
    RateText,
    Size,
    Text,
    TopicFilter,
    Whole,
    WholeSeconds,
    WireText,
)


class ZoneMqtt(Section):
    """What a zone may set of `[mqtt]`."""

    max_packet_size: Size = key(10_485_760, "Largest packet accepted from a client.", "bytes", ge=128, le=268_435_460)
    max_payload_size: Size = key(
        0,
        "Largest payload of a publication. A message with a larger one is dropped; a 5.0 client that waits for an "
        "acknowledgement gets 0x97. A client with a larger will may not connect (0x97, 3 for 3.x). 0 sets no limit "
        "besides `max_packet_size`.",
        "bytes",
        ge=0,
    )
    max_topic_levels: Whole = key(128, "Levels of a topic name or filter.", "levels", ge=1, le=65_535)
    max_filters: Whole = key(
        2000,
        "Topic filters in one SUBSCRIBE or UNSUBSCRIBE. A client that sends more is disconnected (0x97). 0 means "
        "no limit.",
        "filters",
        ge=0,
    )
    max_topic_alias: Whole = key(100, "Topic aliases a client may use towards the broker.", "aliases", ge=0, le=65_535)
    max_topic_alias_out: Whole = key(
        100,
        "Topic aliases the broker uses towards a client that accepts that many. 0 turns them off.",
        "aliases",
        ge=0,
        le=65_535,
    )
    receive_maximum: Whole = key(
        65_535,
        "QoS 1 and 2 messages that a 5.0 client may send before the broker has acknowledged them; one that sends more "
        "is disconnected. Clients are told this number, or `session.max_awaiting_rel` when that is less. While a "
        "client of any version is owed more answers than this, or than 4,096, because they wait for the store, "
        "nothing more is read from it.",
        "messages",
        ge=1,
        le=65_535,
    )
    max_unacknowledged_bytes: Size = key(
        4_194_304,
        "Bytes of one client's QoS 1 and 2 messages that may wait for the store, such as while the disk is full: "
        "beyond, nothing more is read from it until half of them are acknowledged. 0 means no limit.",
        "bytes",
        ge=0,
    )
    max_qos: Whole = key(2, "Highest QoS accepted and granted.", ge=0, le=2)
    retain_available: Flag = key(True, "Whether clients may publish retained messages.")
    wildcard_subscriptions: Flag = key(True, "Whether filters may contain `+` and `#`.")
    shared_subscriptions: Flag = key(True, "Whether clients may subscribe to `$share/GROUP/FILTER`.")
    server_keep_alive: WholeSeconds = key(
        0, "Keep-alive that replaces the one of 5.0 clients. 0 uses theirs.", "seconds", ge=0, le=65_535
    )
    max_keep_alive: WholeSeconds = key(
        0,
        "Longest keep-alive; 5.0 clients that ask for more, or for none, get this one. 0 means no maximum.",
        "seconds",
        ge=0,
        le=65_535,
    )
    keep_alive_multiplier: Number = key(
        1.5, "A client that is silent for its keep-alive times this factor is disconnected.", "factor", ge=1.0, le=10.0
    )
    connect_timeout: Duration = key(
        15.0,
        "A connection without a complete CONNECT after this time is closed; a client whose login is not decided "
        "by then is refused (0x88). One whose CONNACK then waits for the store, such as while the disk is full, is "
        "closed after the same time.",
        "seconds",
        gt=0,
    )
    allow_empty_client_id: Flag = key(True, "Whether the broker assigns a client id to clients without one.")
    max_client_id_length: Whole = key(256, "Longest client id that is accepted.", "bytes", ge=23, le=65_535)
    response_information: WireText = key("", "Response information for 5.0 clients that ask for it. Empty sends none.")
    server_reference: WireText = key(
        "", "Another server that the broker names to refused 5.0 clients. Empty sends none."
    )
    linger: Duration = key(
        5.0,
        "After its last packet the broker waits this long for the client to close the connection, so that it can "
        "read the packet.",
        "seconds",
    )


class MqttSettings(ZoneMqtt):
    """What the broker offers, and what it accepts from a client."""

    packet_timeout: OptionalDuration = key(
        None,
        "A client is disconnected (0x97) when one of its packets takes longer than this, and a second more for each "
        "`min_packet_rate` bytes of it that have come. Checked every 10 seconds. 0 turns this off. When it is not "
        "set: 30 s in a standalone broker, off in a broker inside another process.",
        "seconds",
        ge=0,
    )
    min_packet_rate: Whole = key(
        100, "Bytes that a client sends of a large packet each second, at least; see `packet_timeout`.", "bytes/s", ge=1
    )
    assigned_client_id_prefix: WireText = key(
        "auto-", "Prefix of client ids that the broker assigns; 20 random characters follow.", max_length=1000
    )
    subscribe_denied: Literal["refuse", "grant"] = key(
        "refuse",
        "The answer to a SUBSCRIBE that the access rules deny: a failure, or a grant without deliveries.",
    )
    strict_utf8: Flag = key(True, "Whether text with control characters or non-characters is refused.")


class ZoneSession(Section):
    """What a zone may set of `[session]`."""

    max_inflight: Whole = key(
        100,
        "QoS 1 and 2 messages sent and not yet acknowledged (the window); a 5.0 client's receive maximum can lower it.",
        "messages",
        ge=1,
        le=65_535,
    )
    max_queue_length: Whole = key(
        10_000, "Messages that wait for a client, for each priority. 0 means no limit.", "messages", ge=0
    )
    max_inflight_bridge: Whole = key(
        20,
        "`max_inflight` towards a 3.x client that announces itself as a bridge, as Mosquitto's do unless "
        "`try_private` is off: these lose QoS 2 messages above 20.",
        "messages",
        ge=1,
        le=65_535,
    )
    max_inflight_bytes: Size = key(
        16_777_216,
        "No further message is sent while unacknowledged messages of 4 KiB and more take this many bytes. 0 means "
        "no limit.",
        "bytes",
        ge=0,
    )
    max_queue_bytes: OptionalSize = key(
        None,
        "Bytes of the messages that wait for a client: topics, payloads and properties, and 512 for each message. "
        "0 means no limit. When it is not set, twice `mqtt.max_packet_size`, and at least 16 MiB.",
        "bytes",
        ge=0,
    )
    store_qos0: Flag = key(True, "Whether QoS 0 messages wait for a client that is away.")
    retry_interval: Duration = key(
        0.0,
        "Send unacknowledged messages again after this long while a 3.1 or 3.1.1 client stays connected; 5.0 "
        "forbids it. 0 sends them again only when the client reconnects.",
        "seconds",
    )
    max_awaiting_rel: Whole = key(
        65_535,
        "QoS 2 messages of a client whose PUBREL is missing; together they may take `max_queue_bytes`. A 5.0 "
        "client gets this as its receive maximum; a 3.x client that sends more is disconnected.",
        "messages",
        ge=1,
        le=65_535,
    )
    await_rel_timeout: Duration = key(
        0.0,
        "A QoS 2 message whose PUBREL has not come after this time is dropped and its packet id forgotten, so the "
        "client may publish it twice. 0 waits as long as the session lasts.",
        "seconds",
    )
    expiry_interval: Expiry = key(
        7200, "How long a 3.1 or 3.1.1 session with clean session 0 outlives its connection.", "seconds", ge=0
    )
    max_expiry_interval: WholeSeconds = key(
        0, "Longest session expiry that a 5.0 client gets. 0 means no maximum.", "seconds", ge=0
    )
    max_subscriptions: Whole = key(10_000, "Subscriptions of one client. 0 means no limit.", "subscriptions", ge=0)


class SessionSettings(ZoneSession):
    """What is kept for each client, connected or not."""

    priorities: Mapping[TopicFilter, Annotated[int, Field(strict=True, ge=1, le=255)]] = key(
        {}, "Topic filters and their priorities, 1 to 255: messages of a higher priority leave the queue first."
    )
    default_priority: Literal["lowest", "highest"] = key(
        "lowest", "Priority of messages whose topic matches nothing in `priorities`."
    )
    overflow: Literal["drop_oldest", "drop_new"] = key(
        "drop_oldest", "What a full queue drops: its oldest message of the lowest priority, or the new one."
    )
    backpressure: Duration = key(
        1.0,
        "When the queue of a connected client is a quarter full, its publishers wait until the queue is short "
        "again, but no longer than this; then the client is a slow consumer, and its queue drops messages. 0 "
        "turns waiting off.",
        "seconds",
    )
    backpressure_budget: Duration = key(
        6.0,
        "Seconds of each minute that a publisher waits in vain, for all subscribers that do not catch up in time "
        "or disconnect. After that it waits only for subscribers that caught up the last time. 0 means no limit.",
        "seconds",
    )
    hook_timeout: Duration = key(
        120.0,
        "A client whose packet has waited this long for async hooks is disconnected. Access decisions also have "
        "`acl.timeout`.",
        "seconds",
        gt=0,
    )
    upgrade_qos: Flag = key(
        False, "Deliver with the subscription's QoS even when the message was published with a lower one."
    )


class RetainedSettings(Section):
    """The last message of each topic, kept for new subscriptions."""

    enabled: Flag = key(True, "Whether retained messages are kept. `mqtt.retain_available` announces it to clients.")
    max_messages: Whole = key(
        1_000_000, "Retained messages on this node, without those of `$SYS`. 0 means no limit.", "messages", ge=0
    )
    max_bytes: Size = key(
        1_073_741_824, "Memory that all retained messages may take, roughly. 0 means no limit.", "bytes", ge=0
    )
    max_message_size: Size = key(
        0,
        "Largest message that is retained: its topic, payload and properties. 0 sets no limit besides "
        "`mqtt.max_packet_size`.",
        "bytes",
        ge=0,
    )
    expiry_interval: Duration = key(
        0.0, "A retained message without an expiry of its own is dropped after this long. 0 keeps it.", "seconds"
    )
    check_retain_source: Flag = key(
        False,
        "Whether a retained message is delivered only while its publisher may publish it. For a publisher without "
        "a session, the access rules see its client id and user name.",
    )
    replay_batch: Whole = key(
        100, "Retained messages that a new subscription is sent before other work gets its turn.", "messages", ge=1
    )


StrategyName: TypeAlias = Literal[
    "round_robin",
    "random",
    "sticky",
    "hash_client",
    "hash_topic",
    "local",
    "round_robin_per_group",
    "hash_clientid",
]


class SharedSettings(Section):
    """Shared subscriptions, `$share/GROUP/FILTER`."""

    strategy: StrategyName = key(
        "round_robin",
        "Which member of a group gets a message: each in turn, any, always the same, by the publisher's client id, "
        "or by the topic. `round_robin_per_group` and `hash_clientid` are EMQX's names of the first and the fourth; "
        "`local` is the first as well, on one node.",
    )
    strategies: Mapping[Text, StrategyName] = key({}, "Names of groups to their own strategies.")


class ZoneRates(Section):
    """What a zone may set of `[rate]`."""

    client_connections: RateText = key("0", "Connections of each client id; further ones are refused (0x9F).")
    client_messages: RateText = key("0", "Messages from each client id, over all its connections.")
    client_bytes: RateText = key("0", "Bytes from each client id, over all its connections.")
    connection_messages: RateText = key("0", "Messages on each connection.")
    connection_bytes: RateText = key("0", "Bytes on each connection.")
    over: Over = key(
        "pause",
        "Over a limit of messages or bytes, `pause` stops reading until it is kept again, and nothing is lost. "
        "`refuse` drops the messages; 5.0 clients that wait for an acknowledgement get 0x97. Then the payloads alone "
        "count as bytes.",
    )


class RateSettings(ZoneRates):
    """Rates, as token buckets: so many per second on average, and a burst at once, or `shaped`: one by one. 0 means no
    limit.

    Nothing is lost by default: over a limit, connections are not read from, and new ones are accepted later. The rates
    of each client and of each connection hold at every listener that has none of its own.
    """

    connections: RateText = key("0", "New connections, of all clients together. More are accepted later.")
    messages: RateText = key("0", "Messages from all clients together.")
    bytes: RateText = key("0", "Bytes from all clients together.")


SectionType = TypeVar("SectionType", bound=Section)


class ZoneSettings(ZoneMqtt, ZoneSession, ZoneRates):
    """Keys of `[mqtt]`, `[session]` and `[rate]` for the clients of the listeners that name this zone; they mean what
    they mean there. Where a key is not set, the general one holds.
    """

    @model_serializer(mode="wrap")
    def _only_own(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without keys that are not set: the same keys are set again when it is read."""
        return {name: value for name, value in dump(self).items() if name in self.model_fields_set}

    def applied_to(self, general: SectionType) -> SectionType:
        """A general section with what is set here."""
        own = {name: getattr(self, name) for name in self.model_fields_set if name in type(general).model_fields}
        return general.model_copy(update=own)


class LimitSettings(Section):
    """Limits of the whole node."""

    max_connections: Whole = key(
        0,
        "Connections of all listeners at the same time; further connections are closed. 0 means no limit besides those "
        "of the listeners.",
        "connections",
        ge=0,
    )
    max_sessions: Whole = key(
        1_000_000,
        "Sessions, connected or not; a client that needs one more is refused. 0 means no limit.",
        "sessions",
        ge=0,
    )
    max_subscriptions: Whole = key(
        10_000_000,
        "Subscriptions of all clients; a further SUBSCRIBE is refused. 0 means no limit.",
        "subscriptions",
        ge=0,
    )
