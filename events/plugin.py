"""The plugin `events`: records what happens in the broker."""

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import SecretStr, model_validator

from trunkline.config.units import Duration, Flag, Folder, Secret, Size, Text, TopicFilter, Whole
from trunkline.hooks.points import find_all
from trunkline.plugins import Context, setting
from trunkline.plugins.shipped.extras import NeedsExtra

PersonalColumn = Literal["client_id", "publisher", "username", "peer", "peer_port", "topic", "filter", "payload"]
HashedColumn = Literal["client_id", "publisher", "username", "peer", "topic", "filter"]


class EventsSettings(NeedsExtra):
    """The event log: what happens in the broker, in files that Spark and other programs read."""

    extra = "events"
    libraries = ("pyarrow",)
    imports = ("trunkline.events.exporter",)

    path: Folder = setting(Path("event-log"), "Folder of the log. Several nodes may share one.")
    kinds: tuple[Text, ...] = setting(
        (
            "client.authenticated",
            "client.connack",
            "client.connected",
            "client.disconnected",
            "client.acl_decided",
            "session.*",
            "message.publish",
            "message.routed",
            "message.delivered",
            "message.acked",
            "message.dropped",
            "alarm.*",
        ),
        "Hook points by name; a `*` at the end matches the rest.",
    )
    topics: tuple[TopicFilter, ...] = setting(
        ("#",), "Topics of recorded events, where an event has one. `#` matches all but the topics that begin with `$`."
    )
    clients: tuple[Text, ...] = setting(
        ("*",), "Client ids of recorded events, where an event has one, as patterns with `*` and `?`."
    )
    one_in: Whole = setting(
        1,
        "Record one message in this many, with all of its events. All other events are recorded.",
        "messages",
        ge=1,
    )
    max_payload: Size = setting(0, "Record payloads of up to this length. 0 records none.", "bytes", ge=0)
    user_properties: Flag = setting(False, "Record the user properties of messages.")
    hash: tuple[HashedColumn, ...] = setting(
        (), "Columns in which a keyed hash replaces the text. The same text has the same hash in all of them."
    )
    hash_key: Secret = setting(SecretStr(""), "Key of the hashes, up to 64 bytes.")
    leave_out: tuple[PersonalColumn, ...] = setting((), "Columns that stay empty.")
    batch_rows: Whole = setting(1024, "Rows that are written together.", "rows", ge=1, le=65_536)
    batch_time: Duration = setting(
        1.0, "How long a row waits for others to be written with it; a tenth of that if none follow.", "seconds", gt=0
    )
    compression: Literal["none", "lz4", "zstd"] = setting("lz4", "How batches are compressed.")
    sync: Duration = setting(1.0, "Time between two syncs of written data to disk.", "seconds", gt=0)
    roll_size: Size = setting(
        64 * 1024 * 1024,
        "Size after which a segment ends and the next begins; at most an eighth of `max_size`.",
        "bytes",
        ge=1024,
    )
    roll_time: Duration = setting(
        600.0, "Time between the first and the last event of a segment after which it ends.", "seconds", gt=0
    )
    roll_time_small: Duration = setting(
        6 * 3600.0, "The same for a segment with few rows: fewer than one for each KiB of `roll_size`.", "seconds", gt=0
    )
    heartbeat: Duration = setting(
        1.0, "Time between two `node.tick` events, which show readers that time goes on.", "seconds", gt=0
    )
    stats: Duration = setting(
        10.0,
        "Time between two looks at the figures of node and sessions. Those that have changed are recorded, and all of "
        "them every ten minutes.",
        "seconds",
        gt=0,
    )
    stats_sessions: Whole = setting(
        100, "Sessions with the longest queues that are recorded each time.", "sessions", ge=0
    )
    max_size: Size = setting(
        4 * 1024**3,
        "Largest size of this node's log; beyond that its oldest segments are deleted.",
        "bytes",
        ge=1024**2,
    )
    max_age: Duration = setting(7 * 86_400.0, "Older segments are deleted.", "seconds", gt=0)
    delete_read: Flag = setting(False, "Delete segments that all readers with a stored position have read.")
    max_rejects: Size = setting(1024 * 1024, "Bytes kept of events that could not be turned into rows.", "bytes", ge=0)

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        for name in self.kinds:
            try:
                find_all(name)
            except LookupError as error:
                raise ValueError(f"kinds: {error.args[0]}") from None
        if self.hash and not self.hash_key.get_secret_value():
            raise ValueError("hash_key: without a key, anyone who knows the names could hash them too")
        if len(self.hash_key.get_secret_value().encode()) > 64:
            raise ValueError("hash_key: more than 64 bytes")
        return self


class Events:
    """Records what happens in the broker, for Spark and others to read."""

    def __init__(self, context: Context[EventsSettings]) -> None:
        context.settings.check_installed()
        self._context: Final = context

    def start(self) -> None:
        # pyarrow takes a fifth of a second, which only a broker that records should wait for
        from trunkline.events.exporter import Exporter

        self._exporter = Exporter(self._context)
        self._exporter.start()

    async def run(self) -> None:
        await self._exporter.run()

    def stop(self) -> None:
        self._exporter.stop()
