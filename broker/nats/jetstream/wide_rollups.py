"""Roll-ups of a subject with wildcards, which a client of NATS may publish to: the message takes the place of those of
all subjects that match. To clients of MQTT `*` is a letter, and means itself.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from trunkline.broker.nats.mapping import filter_of, subject_of
from trunkline.broker.session.access import Question
from trunkline.mqtt.topics import NO_LEVEL_LIMIT
from trunkline.nats.errors import BadSubject
from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol.subjects import ONE, REST
from trunkline.store import StoreError
from trunkline.streams.errors import StreamError
from trunkline.streams.filters import TopicFilters
from trunkline.streams.purging import purge
from trunkline.streams.rollups import ROLLUP, TOPIC
from trunkline.streams.search import topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.broker.nats.jetstream.asker import Asker
    from trunkline.streams.host import StreamHost
    from trunkline.streams.stream import Stream


def rolled_up(topic: str, demands: Mapping[str, str]) -> str | None:
    """The filter of what a message takes the place of; None: its subject has no wildcards, or it does not say so."""
    if demands.get(ROLLUP, "").lower() != TOPIC or not {ONE, REST}.intersection(topic.split("/")):
        return None
    try:
        return filter_of(subject_of(topic), NO_LEVEL_LIMIT)
    except BadSubject:
        return None  # no pattern: `a.>.b` matches nothing but itself


async def refusal(asker: Asker, stream: Stream, host: StreamHost, filter: str) -> ApiError | None:
    """Each topic must be one that the client may publish to: it might roll up that one alone as well."""
    channel, access = asker.standing.channel, asker.standing.services.access
    for topic, _ in await topics(stream.log, host, TopicFilters((filter,))):
        if await access.refusal(Question(channel.client, "publish", topic)) is not None:
            return ApiError(403, 0, f"permissions violation for publish to {topic!r}")
    return None


async def roll_up(stream: Stream, host: StreamHost, filter: str, sequence: int) -> None:
    """Remove what came before this message. Whoever finds the stream in between finds more than there is to be, and
    never less: the message is there already."""
    with suppress(StreamError, StoreError):  # it is sealed since, or cannot be read: the messages stay then
        await purge(stream, host, filter, sequence)
