"""Streams that the configuration declares: they are there when the broker starts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from trunkline.config.section import Section, key
from trunkline.config.units import Duration, Flag, Size, Text, TopicFilter, Whole

if TYPE_CHECKING:
    from trunkline.streams.config import StreamConfig


class StreamSettings(Section):
    """A [stream](streams.md) that is there when the broker starts: it is created, or changed to these settings. One
    that is taken out of the configuration stays until `trunkline streams delete`. `name` and `filters` are required."""

    name: Text = key("", "Its name: 1 to 255 characters without spaces and `/ + # . * > \\ $`.")
    filters: tuple[TopicFilter, ...] = key((), "It keeps the messages of all topics that match one of these.")
    description: Text = key("", "What it is for.")
    retention: Literal["limits", "interest", "workqueue"] = key(
        "limits",
        "When a message leaves: when a limit says so, when all consumers that want it have acknowledged it, or when "
        "its one consumer has.",
    )
    max_messages: Whole = key(0, "The most messages; 0 is no limit.", "messages", ge=0)
    max_bytes: Size = key(0, "The most bytes of topics, payloads and properties; 0 is no limit.", "bytes", ge=0)
    max_age: Duration = key(0, "How long a message stays at most; 0 is no limit.", "seconds", ge=0)
    max_messages_per_topic: Whole = key(0, "The most messages of one topic; 0 is no limit.", "messages", ge=0)
    max_message_size: Size = key(0, "Larger messages are refused; 0 is no limit.", "bytes", ge=0)
    max_consumers: Whole = key(0, "The most consumers; 0 is no limit.", "consumers", ge=0)
    discard: Literal["old", "new"] = key(
        "old", "What a full stream drops: its oldest messages, or the new one, whose publisher is refused (0x97)."
    )
    discard_new_per_topic: Flag = key(
        False, 'With `discard = "new"`: a topic that has `max_messages_per_topic` takes no more.'
    )
    duplicate_window: Duration = key(
        120.0, "How long the stream knows the id of a message (the user property `Nats-Msg-Id`).", "seconds", ge=0
    )
    no_ack: Flag = key(False, "Publishers are acknowledged before their messages are stored.")
    deny_delete: Flag = key(False, "No message can be deleted. This cannot be taken back.")
    deny_purge: Flag = key(False, "The stream cannot be purged. This cannot be taken back.")
    allow_rollup: Flag = key(
        False, "A message with the user property `Nats-Rollup` takes the place of those before it."
    )
    allow_message_ttl: Flag = key(
        False,
        "A message with the user property `Nats-TTL` leaves when that time is over, and one with a message expiry "
        "interval when it expires. This cannot be taken back.",
    )
    delete_marker_ttl: Duration = key(
        0,
        "With `allow_message_ttl`: when the last message of a topic leaves by its age or its life, a marker takes its "
        "place for so long: 1 s or more. 0 is no marker.",
        "seconds",
        ge=0,
    )
    compressed: Flag = key(False, "What comes from now on is stored in fewer bytes, which takes processor time.")
    metadata: Mapping[Text, Text] = key({}, "Words of yours about the stream.")

    @property
    def declared(self) -> "StreamConfig":
        # imported here, and below: few brokers in tests have streams
        from trunkline.streams.config import Discard, Retention, StreamConfig

        values: dict[str, Any] = self.model_dump()
        values["retention"], values["discard"] = Retention(self.retention), Discard(self.discard)
        return StreamConfig(**values)


def conflicts(streams: Sequence[StreamSettings]) -> Iterator[tuple[tuple[str, int], str]]:
    """What is wrong with streams, and among them."""
    if not streams:
        return
    from trunkline.streams.errors import InvalidStreamConfig
    from trunkline.streams.filters import TopicFilters

    names: dict[str, int] = {}
    for index, settings in enumerate(streams):
        path = ("streams", index)
        try:
            settings.declared.check()
        except InvalidStreamConfig as error:
            yield path, str(error)
            continue
        first = names.setdefault(settings.name, index)
        if first != index:
            yield path, f'streams[{first}] is called "{settings.name}", too'
            continue
        for other in range(index):
            shared = TopicFilters(streams[other].filters).overlap(TopicFilters(settings.filters))
            if streams[other].filters and shared is not None:
                yield path, f"streams[{other}] takes some of the same messages: {shared[0]!r} and {shared[1]!r} overlap"
