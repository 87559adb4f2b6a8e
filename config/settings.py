"""The sections of the configuration: every key's name, default, limits, unit and meaning.

The models are immutable, so that a part of the broker may keep what it read. Changing a setting means a new `Config`.
docs/configuration.md is written from them (`python -m trunkline.management.config_docs`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trunkline.config.units import (
    Duration,
    Expiry,
    Flag,
    ListenerUrl,
    Network,
    Number,
    OptionalDuration,
    OptionalFlag,
    OptionalPath,
    OptionalSize,
    Size,
    Text,
    TopicFilter,
    Whole,
    WholeSeconds,
    WireText,
    is_loopback,
    split_listener_url,
)


def key(default: Any, text: str, unit: str = "", **limits: Any) -> Any:
    """A setting: what it means, and what it counts in."""
    return Field(default, description=text, json_schema_extra={"unit": unit}, **limits)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


#: What connections without a socket come in by, in place of a listener.
IN_PROCESS: Final = "in-process"


class CredentialFiles(NamedTuple):
    password_file: Path | None
    client_id_file: Path | None
    scram_file: Path | None


class NodeSettings(Section):
    """The broker process itself."""

    name: Text = key("trunkline", "Name of this node in logs, metrics and `$SYS` topics.", min_length=1, max_length=64)
    watchdog: OptionalDuration = key(
        None,
        "When something holds up everybody for so long, a line in the log names it: the actor, the callback, its plugin and "
        "the line where it stands. 0: nothing watches. When it is not set, 1 s in a broker of its own; a broker inside "
        "another process is not watched.",
        "seconds",
        ge=0,
    )


class Listener(Section):
    """Where clients connect. With an empty list, the broker serves in-process connections only.

    A listener may be written as its URL alone: `listeners = ["tcp://127.0.0.1:1883"]`.
    """

    url: ListenerUrl = key("tcp://127.0.0.1:1883", "Address and port to listen on. 1883 when the URL has no port.")
    name: Text = key("", "Name in logs, metrics and hooks. The URL when it is empty.")
    max_connections: Whole = key(100_000, "Connections at the same time; further ones are closed.", "connections", ge=1)
    allow: tuple[Network, ...] = key((), "Only peers from these networks may connect. Everybody when it is empty.")
    deny: tuple[Network, ...] = key((), "Peers from these networks may not connect, even when `allow` has them.")
    allow_anonymous: OptionalFlag = key(
        None, "Whether clients may connect here without credentials. `auth.allow_anonymous` decides when it is not set."
    )
    password_file: OptionalPath = key(
        None, "User names and hashed passwords of clients that connect here, in place of `auth.password_file`."
    )
    client_id_file: OptionalPath = key(
        None, "Client ids and hashed passwords of clients that connect here, in place of `auth.client_id_file`."
    )
    scram_file: OptionalPath = key(
        None, "SCRAM credentials of clients that connect here, in place of `auth.scram_file`."
    )
    versions: tuple[Literal["3.1", "3.1.1", "5.0"], ...] = key(
        ("3.1", "3.1.1", "5.0"), "MQTT versions that are taken here. Clients of others are refused.", min_length=1
    )
    backlog: Whole = key(1024, "Connections that the system keeps waiting to be accepted.", "connections", ge=1)

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, value: object) -> object:
        return {"url": value} if isinstance(value, str) else value

    @property
    def host(self) -> str:
        return split_listener_url(self.url)[0]

    @property
    def port(self) -> int:
        return split_listener_url(self.url)[1]

    @property
    def label(self) -> str:
        return self.name or self.url

    @property
    def files(self) -> CredentialFiles:
        return CredentialFiles(self.password_file, self.client_id_file, self.scram_file)

    @property
    def loopback(self) -> bool:
        """Only this machine can reach it."""
        return is_loopback(self.host)


class MqttSettings(Section):
    """What the broker offers, and what it takes from a client."""

    max_packet_size: Size = key(10_485_760, "Largest packet taken from a client.", "bytes", ge=128, le=268_435_460)
    max_payload_size: Size = key(
        0,
        "Largest payload that is published. A message with a larger one goes nowhere: a 5.0 client is told so (0x97) when it "
        "waits for an acknowledgement. 0 takes what `max_packet_size` lets in.",
        "bytes",
        ge=0,
    )
    max_topic_levels: Whole = key(128, "Levels of a topic name or filter.", "levels", ge=1, le=65_535)
    max_filters: Whole = key(
        2000,
        "Topic filters in one SUBSCRIBE or UNSUBSCRIBE. A client that sends more is disconnected (0x97). 0 is no bound.",
        "filters",
        ge=0,
    )
    max_topic_alias: Whole = key(100, "Topic aliases a client may use towards the broker.", "aliases", ge=0, le=65_535)
    max_topic_alias_out: Whole = key(
        100,
        "Topic aliases the broker uses towards a client that takes that many. 0 turns them off.",
        "aliases",
        ge=0,
        le=65_535,
    )
    receive_maximum: Whole = key(
        65_535,
        "QoS 1 and 2 messages that a 5.0 client may send before the broker has acknowledged them; one that sends more is "
        "disconnected. Clients are told this number, or `session.max_awaiting_rel` when that is less.",
        "messages",
        ge=1,
        le=65_535,
    )
    max_qos: Whole = key(2, "Highest QoS taken and granted.", ge=0, le=2)
    retain_available: Flag = key(True, "Whether clients may publish retained messages.")
    wildcard_subscriptions: Flag = key(True, "Whether filters may hold `+` and `#`.")
    shared_subscriptions: Flag = key(True, "Whether clients may subscribe to `$share/GROUP/FILTER`.")
    server_keep_alive: WholeSeconds = key(
        0, "Keep alive that replaces what 5.0 clients ask for. 0 takes theirs.", "seconds", ge=0, le=65_535
    )
    max_keep_alive: WholeSeconds = key(
        0,
        "Longest keep alive; 5.0 clients that ask for more, or for none, are told this one. 0 is no maximum.",
        "seconds",
        ge=0,
        le=65_535,
    )
    keep_alive_multiplier: Number = key(
        1.5, "A client that is silent for its keep alive times this is disconnected.", "factor", ge=1.0, le=10.0
    )
    connect_timeout: Duration = key(
        15.0,
        "A connection whose CONNECT is not complete by then is closed, and a client that nobody has decided about by then "
        "is refused (0x88).",
        "seconds",
        gt=0,
    )
    allow_empty_client_id: Flag = key(True, "Whether the broker names clients that bring no client id.")
    assigned_client_id_prefix: WireText = key(
        "auto-", "What the client ids that the broker gives begin with; 20 random characters follow.", max_length=1000
    )
    max_client_id_length: Whole = key(256, "Longest client id that a client may bring.", "bytes", ge=23, le=65_535)
    response_information: WireText = key("", "Response information for 5.0 clients that ask for it. Empty sends none.")
    server_reference: WireText = key("", "Another server that refused 5.0 clients are told of. Empty sends none.")
    subscribe_denied: Literal["refuse", "grant"] = key(
        "refuse",
        "What answers a SUBSCRIBE that the access rules deny: a failure, or a grant under which nothing is delivered.",
    )
    strict_utf8: Flag = key(True, "Whether text with control characters or non-characters is refused.")
    linger: Duration = key(
        5.0,
        "After its last packet the broker waits this long for the client to close, so that the packet gets read.",
        "seconds",
    )


class SessionSettings(Section):
    """What is kept for each client, connected or not."""

    max_inflight: Whole = key(
        100,
        "QoS 1 and 2 messages sent and not yet acknowledged; a 5.0 client's receive maximum can lower it.",
        "messages",
        ge=1,
        le=65_535,
    )
    max_queue_length: Whole = key(10_000, "Messages that wait for a client. 0 is no bound.", "messages", ge=0)
    max_inflight_bridge: Whole = key(
        20,
        "The same towards a 3.x client that says it is a bridge, as mosquitto's do unless `try_private` is off: they lose "
        "QoS 2 messages above 20.",
        "messages",
        ge=1,
        le=65_535,
    )
    max_inflight_bytes: Size = key(
        16_777_216,
        "No further message is sent while those of 4 KiB and more that are sent and not yet acknowledged take so many "
        "bytes. 0 is no bound.",
        "bytes",
        ge=0,
    )
    max_queue_bytes: OptionalSize = key(
        None,
        "Bytes that messages may take that wait for a client: their topics, payloads and properties, and 512 for each. 0 "
        "is no bound. When it is not set, twice `mqtt.max_packet_size`, and at least 16 MiB.",
        "bytes",
        ge=0,
    )
    store_qos0: Flag = key(True, "Whether QoS 0 messages wait for a client that is away.")
    priorities: Mapping[TopicFilter, Annotated[int, Field(strict=True, ge=1, le=255)]] = key(
        {}, "Topic filters to priorities 1 to 255: what has a higher one leaves the queue first."
    )
    default_priority: Literal["lowest", "highest"] = key(
        "lowest", "Where messages stand whose topic matches nothing in `priorities`."
    )
    overflow: Literal["drop_oldest", "drop_new"] = key(
        "drop_oldest", "What a full queue loses: its oldest message of the lowest priority, or the new one."
    )
    retry_interval: Duration = key(
        0.0,
        "Send unacknowledged messages again after this long while a 3.1 or 3.1.1 client stays connected; 5.0 "
        "forbids it. 0 sends them again only when the client reconnects.",
        "seconds",
    )
    backpressure: Duration = key(
        1.0,
        "A connected client whose queue is a quarter full keeps its publishers waiting until the queue is short again, "
        "but no longer than this: then it is a slow consumer, and its queue loses what is too much. 0 makes nobody wait.",
        "seconds",
    )
    backpressure_budget: Duration = key(
        6.0,
        "Seconds of each minute that a publisher is kept waiting in vain, by all subscribers that do not catch up in time or "
        "go away meanwhile. After that only those that caught up the last time may have it wait. 0 is no bound.",
        "seconds",
    )
    max_awaiting_rel: Whole = key(
        65_535,
        "QoS 2 messages from a client whose PUBREL is missing; together they may hold `max_queue_bytes`. A 5.0 client "
        "is told that it may send no more; a 3.x client cannot be told and is disconnected.",
        "messages",
        ge=1,
        le=65_535,
    )
    await_rel_timeout: Duration = key(
        0.0,
        "A QoS 2 message from a client whose PUBREL has not come by then is dropped and its packet id forgotten, so that "
        "the client may deliver it twice. 0 waits as long as the session lasts.",
        "seconds",
    )
    hook_timeout: Duration = key(
        120.0,
        "A client whose packet has waited this long for hooks that take their time is disconnected. Access decisions "
        "have `acl.timeout` besides.",
        "seconds",
        gt=0,
    )
    upgrade_qos: Flag = key(
        False, "Deliver with the subscription's QoS even when the message was published with a lower one."
    )
    expiry_interval: Expiry = key(
        7200, "How long a 3.1 or 3.1.1 session with clean session 0 outlives its connection.", "seconds", ge=0
    )
    max_expiry_interval: WholeSeconds = key(
        0, "Longest session expiry that a 5.0 client gets. 0 is no maximum.", "seconds", ge=0
    )
    max_subscriptions: Whole = key(10_000, "Subscriptions of one client. 0 is no bound.", "subscriptions", ge=0)


class RetainedSettings(Section):
    """The last message of each topic, kept for those who subscribe later."""

    enabled: Flag = key(True, "Whether retained messages are kept. `mqtt.retain_available` tells clients.")
    max_messages: Whole = key(
        1_000_000, "Retained messages on this node, those of `$SYS` left out. 0 is no bound.", "messages", ge=0
    )
    max_bytes: Size = key(1_073_741_824, "Memory that all of them may take, roughly. 0 is no bound.", "bytes", ge=0)
    max_message_size: Size = key(
        0,
        "Largest message that is retained: its topic, payload and properties. 0 takes what `mqtt.max_packet_size` lets in.",
        "bytes",
        ge=0,
    )
    expiry_interval: Duration = key(
        0.0, "A retained message without an expiry of its own is dropped after this long. 0 keeps it.", "seconds"
    )
    check_retain_source: Flag = key(
        False,
        "Whether a retained message is given out only as long as its publisher may publish it. Of a publisher whose session "
        "is over, the access rules are told client id and user name.",
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
        "or by the topic. `round_robin_per_group` and `hash_clientid` are EMQX's names of the first and the fourth; `local` is "
        "the first as well, on one node.",
    )
    strategies: Mapping[Text, StrategyName] = key({}, "Names of groups to their own strategies.")


class AuthSettings(Section):
    """Who may connect. Password files are written by `trunkline passwd`; a listener may have files of its own."""

    allow_anonymous: OptionalFlag = key(
        None,
        "Whether clients may connect without credentials. When it is not set they may on loopback listeners, "
        "as long as no file below is given.",
    )
    password_file: OptionalPath = key(None, "User names and hashed passwords.")
    client_id_file: OptionalPath = key(None, "Client ids and hashed passwords, for clients known by their id.")
    scram_file: OptionalPath = key(None, "SCRAM credentials for 5.0 enhanced authentication.")

    @property
    def files(self) -> CredentialFiles:
        return CredentialFiles(self.password_file, self.client_id_file, self.scram_file)


class PasswordSettings(Section):
    """How the passwords of these files are verified, so that who guesses them holds up nobody else."""

    threads: Whole = key(
        2, "Threads that verify passwords. Each takes a processor while it does.", "threads", ge=1, le=64
    )
    max_waiting: Whole = key(
        1000,
        "Logins that wait for them, in turns of the addresses that they come from; further ones are refused (0x89), "
        "those first whose address has most.",
        "logins",
        ge=1,
    )
    max_failures: Whole = key(
        5,
        "Different wrong passwords for one name from one address within `window`, after which a login is refused "
        "(0x9F) without a look at the password, unless it was right before. 0: any number.",
        "passwords",
        ge=0,
    )
    max_failures_by_address: Whole = key(
        100,
        "The same for all names together. This machine, behind which a proxy may hide everybody, is not counted. 0: any "
        "number.",
        "passwords",
        ge=0,
    )
    window: Duration = key(60.0, "The time in which wrong passwords are counted.", "seconds", gt=0)
    pause: Duration = key(60.0, "How long logins are refused after that.", "seconds", gt=0)
    max_tracked: Whole = key(10_000, "Logins, names and addresses that are remembered; those seen last are kept.", ge=1)


class AclSettings(Section):
    """Who may publish and subscribe to what."""

    file: OptionalPath = key(None, "Access rules.")
    deny_action: Literal["ignore", "disconnect"] = key(
        "ignore", "What happens to a client that publishes what it may not: its message is dropped, or it is cut off."
    )
    no_match: Literal["allow", "deny"] = key("allow", "The decision where no rule matches.")
    cache_size: Whole = key(
        1024,
        "Decisions remembered for each connection, about topics of up to 256 characters. 0 asks the rules every time.",
        "decisions",
        ge=0,
    )
    asked_again: Whole = key(
        8,
        "When access is decided otherwise than before, plugins and hooks that have to be waited for are asked about so "
        "many subscriptions at the same time.",
        "subscriptions",
        ge=1,
    )
    timeout: Duration = key(
        60.0, "A decision that plugins and hooks have not come to by then is a no.", "seconds", gt=0
    )


class FlappingSettings(Section):
    """Clients with the same id that take each other's session over, again and again."""

    max_takeovers: Whole = key(30, "Takeovers of one client id within `window` that are put up with. 0: any.", ge=0)
    window: Duration = key(60.0, "The time in which takeovers are counted.", "seconds", gt=0)
    jail: Duration = key(60.0, "How long the client id is refused after that.", "seconds", gt=0)


class SysSettings(Section):
    """The broker's own figures, published below `$SYS`."""

    interval: Duration = key(10.0, "Time between two publications. 0 publishes none.", "seconds")


class LogSettings(Section):
    """The broker's log. It holds no payloads and no passwords."""

    level: Literal["debug", "info", "warning", "error"] = key("info", "The least important records that are written.")
    format: Literal["text", "json"] = key("text", "A line of text for each record, or a JSON object.")
    file: OptionalPath = key(None, "File that the log is appended to. Standard error when it is not set.")


class ControlSettings(Section):
    """The control socket, by which `trunkline ctl` reaches a running broker."""

    enabled: OptionalFlag = key(
        None,
        "Whether there is one. When it is not set, there is one if `path` is set, and in a broker of its own, which goes "
        "on without it where the usual place cannot be had; a broker inside another process has none.",
    )
    path: OptionalPath = key(
        None,
        "Where it is. When it is not set, `trunkline/NODE.sock` in `$XDG_RUNTIME_DIR`, or else `trunkline-UID/NODE.sock` "
        "in the system's folder for temporary files; `NODE-2.sock` when another broker has that.",
    )
    transport: Literal["auto", "unix", "tcp"] = key(
        "auto",
        "A Unix socket, or a loopback TCP port that is written to the file together with a token. `auto` takes a Unix "
        "socket where there are any.",
    )
    max_connections: Whole = key(16, "Connections at the same time; further ones are refused.", "connections", ge=1)
    max_frame_size: Size = key(16_777_216, "Largest request, and largest answer.", "bytes", ge=65_536, le=1_073_741_824)
    idle_timeout: Duration = key(
        300.0, "A connection that asks nothing, or reads nothing, for so long is closed.", "seconds", gt=0
    )


class PluginSettings(Section):
    """Every plugin has these keys, besides its own. A section of its name, even an empty one, is all it takes to have it
    run."""

    #: Hook points that deny everything while the plugin should run and does not: what it was to decide, nobody else does.
    guards: ClassVar[tuple[str, ...]] = ()

    enabled: Flag = key(True, "Whether the plugin runs when the broker starts.")
    start_timeout: Duration = key(60.0, "A plugin whose start takes longer has failed.", "seconds", gt=0)
    restarts: Whole = key(5, "Crashes within `restarts_within` after which it is started again.", "restarts", ge=0)
    restarts_within: Duration = key(
        60.0, "The time in which crashes are counted. One more than `restarts` disables the plugin.", "seconds", gt=0
    )

    @property
    def authenticates(self) -> bool:
        """Clients can prove to it who they are."""
        return self.enabled and any("authenticate" in point for point in self.guards)


class TraceSettings(Section):
    """Messages whose way through the broker is kept, so that one can look up what became of them. It is off while both
    `clients` and `topics` are empty; `trunkline ctl` starts and stops it in a running broker too."""

    clients: tuple[Text, ...] = key((), "Client ids: what they publish, and what is to go to them.")
    topics: tuple[TopicFilter, ...] = key((), "Topic filters: messages whose topics match, whoever gets them.")
    max_messages: Whole = key(1000, "Messages kept; the oldest is forgotten.", "messages", ge=1, le=100_000)
    max_steps: Whole = key(1000, "What is kept to have happened to one message.", "steps", ge=1)
    payload_bytes: Size = key(256, "Of each payload only the beginning is kept. 0 keeps none.", "bytes", ge=0)
    max_bytes: Size = key(67_108_864, "Bytes, roughly, that all of it may take.", "bytes", ge=0)

    @property
    def on(self) -> bool:
        return bool(self.clients or self.topics)


class LimitSettings(Section):
    """Bounds of the whole node."""

    max_sessions: Whole = key(
        1_000_000,
        "Sessions, connected or not; a client that needs one more is refused. 0 is no bound.",
        "sessions",
        ge=0,
    )
    max_subscriptions: Whole = key(
        10_000_000,
        "Subscriptions of all clients; a SUBSCRIBE that needs one more is refused it. 0 is no bound.",
        "subscriptions",
        ge=0,
    )
