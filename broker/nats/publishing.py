"""PUB and HPUB: what one client publishes, up to its routing.

A message has QoS 0 and is not retained: NATS promises nothing more. It goes to whoever has a route that matches,
sessions of MQTT and streams as well.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from trunkline.broker.metrics import DropReason
from trunkline.broker.nats.carrying import forms_of, gathered, properties_of
from trunkline.broker.nats.mapping import read_subject, topic_of
from trunkline.broker.stream_keeper import stream_among
from trunkline.hooks.decisions import Deny, Withhold
from trunkline.mqtt.message import Message
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import Reason
from trunkline.nats.errors import BadSubject, PayloadTooLarge
from trunkline.nats.protocol.headers import Headers, Status, encode_headers
from trunkline.nats.protocol.subjects import check_subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.nats.delivering import Delivering
    from trunkline.broker.nats.dialogue import Dialogue
    from trunkline.broker.nats.jetstream.client import ClientJetStream
    from trunkline.broker.nats.standing import Standing
    from trunkline.broker.rate_limits import Buckets
    from trunkline.broker.routes import Subscriber
    from trunkline.mqtt.publication import Publication
    from trunkline.nats.protocol.operations import Publish
    from trunkline.router import Route

INVALID: Final = "Invalid Publish Subject"
#: Bytes of a message's headers: each becomes a user property, in one step.
MAX_BLOCK: Final = 65_536
#: Bytes of a payload up to which messages that follow each other are gathered, and characters of their topic: encoded,
#: they have to be less than 256 bytes.
MOST_GATHERED: Final = 1024
_MOST_GATHERED_TOPIC: Final = 63
#: Subjects that mean something to the broker itself.
_OF_JETSTREAM: Final = b"$JS."
_API: Final = b"$JS.API."
#: Headers that say what a stream is to do.
_DEMAND: Final = b"Nats-"
#: What a request gets that nobody answers.
_NOBODY: Final = Status(503, "")


class SubjectPublishing:
    __slots__ = ("_delivering", "_dialogue", "_jetstream", "_may_publish", "_services", "_standing")

    def __init__(
        self, standing: Standing, dialogue: Dialogue, delivering: Delivering, jetstream: ClientJetStream
    ) -> None:
        self._standing = standing
        self._dialogue = dialogue
        self._delivering = delivering
        self._jetstream = jetstream
        self._services = standing.services
        #: Topics that access rules have decided about.
        self._may_publish = standing.channel.may_publish[0]

    def publish(self, asked: Publish) -> None:
        standing, services, dialogue = self._standing, self._services, self._dialogue
        channel = standing.channel
        if asked.block and not standing.terms.headers:
            dialogue.end("", Reason.PROTOCOL_ERROR, "headers, which its CONNECT does not offer")
            return
        if len(asked.block) > MAX_BLOCK:
            dialogue.end(PayloadTooLarge.answer, Reason.PACKET_TOO_LARGE, f"headers of {len(asked.block)} bytes")
            return
        if asked.subject.startswith(_OF_JETSTREAM):
            self._to_jetstream(asked)
            return
        topic, properties = "", NO_PROPERTIES
        try:
            topic = topic_of(asked.subject, channel.config.mqtt.max_topic_levels)
            properties = properties_of(asked) if asked.block or asked.reply else NO_PROPERTIES
        except BadSubject:
            topic = ""
        if not topic or (standing.terms.is_pedantic and not _is_literal(asked.subject)):
            dialogue.complain(INVALID)
        dialogue.acknowledge()
        if not topic:
            return
        if not (asked.reply or asked.block) and self._may_gather(topic, asked.payload):
            route = services.pubsub.router.match(topic)
            following = [] if route.sinks else dialogue.alike(asked, MOST_GATHERED)
            if following:
                self._publish_all(asked, topic, [asked.payload, *following], route)
                return
        services.metrics.messages_in[0] += 1
        message = Message(topic, asked.payload, 0, False, properties, channel.client.client_id, channel.client.username)
        self._decide(asked, message, self._allowed)

    def _may_gather(self, topic: str, payload: bytes) -> bool:
        """Whether messages that follow and are like this one can be handled together: nothing looks at each."""
        standing = self._standing
        return (
            len(payload) <= MOST_GATHERED
            and len(topic) <= _MOST_GATHERED_TOPIC
            and not self._dialogue.is_verbose
            and not standing.terms.is_pedantic
            and standing.terms.echo  # or each of its own copies is another one that nobody may get
            and standing.channel.quota is None
            and not self._services.hooks.message_publish
            and self._may_publish.get(topic) is True
        )

    def _publish_all(self, asked: Publish, topic: str, payloads: list[bytes], route: Route[Subscriber]) -> None:
        services, client = self._services, self._standing.channel.client
        publication = gathered(topic, payloads)
        services.metrics.messages_in[0] += publication.count
        publication.publisher, publication.username = client.client_id, client.username
        publication.timestamp = wall = self._dialogue.scheduler.now + services.clock.calendar
        publication.guid = services.guids.next(wall, publication.count)
        self._route(asked, publication, route)

    def _to_jetstream(self, asked: Publish) -> None:
        """An acknowledgement or a request. Its access is decided by what it is about, not by each subject: those of
        acknowledgements do not come twice."""
        services, channel, dialogue = self._services, self._standing.channel, self._dialogue
        try:
            topic = topic_of(self._jetstream.place(asked.subject), channel.config.mqtt.max_topic_levels)
        except BadSubject:
            dialogue.complain(INVALID)
            dialogue.acknowledge()
            return
        dialogue.acknowledge()
        services.metrics.messages_in[0] += 1
        message = Message(topic, asked.payload, 0, publisher=channel.client.client_id)
        self._decide(asked, message, self._in_jetstream)

    def _in_jetstream(self, asked: Publish, message: Message, allowed: bool) -> None:
        if not self._may_go(asked, message, allowed):
            return
        seen = self._show(asked, message) if asked.subject.startswith(_API) else 0
        if not self._jetstream.handle(asked) and seen <= 0:
            self._say_nobody(asked)

    def _show(self, asked: Publish, message: Message) -> int:
        """Subscribers see a request to the API, as those to a server do. Returns how many."""
        services, now = self._services, self._dialogue.scheduler.now
        route = services.pubsub.router.match(message.topic)
        if not (route.targets or route.groups or route.behind):
            return 0
        try:
            message.properties = properties_of(asked) if asked.block or asked.reply else NO_PROPERTIES
        except BadSubject:
            return 0
        services.stamp(message, now).frames = forms_of(asked.subject, asked.reply, asked.block, asked.payload)
        self._delivering.kept_back = 0
        reached = services.pubsub.publish(message, now, self._standing.subscriber, self._delivering, route)
        return reached - self._delivering.kept_back

    def _decide(self, asked: Publish, message: Message, decided: Callable[[Publish, Message, bool], None]) -> None:
        """Whether it may be published to the message's topic."""
        channel, access = self._standing.channel, self._services.access
        allowed = self._may_publish.get(message.topic)
        if allowed is not None:
            decided(asked, message, allowed)
        elif access.waits and not channel.client.superuser:
            self._ask(message, partial(decided, asked, message))
        else:
            decided(asked, message, access.may_publish(channel, message.topic, 0, False))

    def _ask(self, message: Message, decided: Callable[[bool], None]) -> None:
        """An access service decides."""
        channel, access = self._standing.channel, self._services.access

        async def decide() -> bool:
            await access.ask_publish(channel, message)
            return channel.answer is not None and channel.answer[0] is message and channel.answer[1]

        self._dialogue.ask(decide, decided, in_task=True)

    def _may_go(self, asked: Publish, message: Message, allowed: bool) -> bool:
        """If not, that is said, logged and counted."""
        quota = self._standing.channel.quota
        if not allowed:
            self._services.dropped(self._standing.client, message, DropReason.NOT_AUTHORIZED)
            self._dialogue.complain(f'Permissions Violation for Publish to "{read_subject(asked.subject)}"')
        return allowed and (quota is None or not self._exceeds(quota, message, self._dialogue.scheduler.now))

    def _allowed(self, asked: Publish, message: Message, allowed: bool) -> None:
        standing, services, dialogue = self._standing, self._services, self._dialogue
        channel, now = standing.channel, dialogue.scheduler.now
        message.timestamp = wall = now + services.clock.calendar
        message.guid = services.guids.next(wall)
        if asked.block:
            message.frames = forms_of(asked.subject, asked.reply, asked.block, asked.payload)
        if not self._may_go(asked, message, allowed):
            return
        routed = message
        if services.hooks.message_publish:
            changed = services.publishing(channel.client, message, now)
            if isinstance(changed, Deny | Withhold):
                services.dropped(channel.client, message, DropReason.HOOK)
                if isinstance(changed, Deny) and changed.disconnect:
                    dialogue.end("", Reason(changed.reason), changed.text or "refused")
                return
            (routed,) = changed.messages
        route = services.pubsub.router.match(routed.topic)
        if route.sinks and (asked.reply or _DEMAND in asked.block):
            stream = stream_among(route.sinks)
            if stream is not None:
                self._jetstream.storing.store(routed, asked, stream, partial(self._route, asked), self._beside_streams)
                return
        self._route(asked, routed, route)

    def _route(self, asked: Publish, message: Publication, route: Route[Subscriber] | None = None) -> None:
        """To whoever has a route that matches."""
        standing, services, dialogue, delivering = self._standing, self._services, self._dialogue, self._delivering
        delivering.kept_back = 0
        now = dialogue.scheduler.now
        reached = services.pubsub.publish(message, now, standing.subscriber, delivering, route) - delivering.kept_back
        if reached > 0:
            self._hold_back()
            return
        services.unheard(standing.client, message)
        if services.pubsub.refused(message):
            self._beside_streams(message)
        else:
            self._say_nobody(asked)

    def _beside_streams(self, message: Publication) -> None:
        """A stream has refused it. To a server, that is no reason to keep it from others."""
        now, subscriber = self._dialogue.scheduler.now, self._standing.subscriber
        self._services.pubsub.publish_beside_streams(message, now, subscriber, self._delivering)
        self._hold_back()

    def _hold_back(self) -> None:
        """Where so much waits for the store, nothing more is taken until the next commit."""
        committer, dialogue = self._services.committer, self._dialogue
        if committer is not None and committer.is_crowded and not dialogue.is_waiting:
            dialogue.wait()
            committer.after_commit(lambda: dialogue.soon(dialogue.proceed))

    def _say_nobody(self, asked: Publish) -> None:
        """To a request that nobody gets."""
        if asked.reply and self._standing.terms.no_responders:
            subject = Headers({"Nats-Subject": read_subject(asked.subject)})
            self._jetstream.answer(asked.reply, encode_headers(subject, _NOBODY))

    def _exceeds(self, quota: Buckets, message: Message, now: float) -> bool:
        """Whether it comes too soon, and is dropped."""
        services, client = self._services, self._standing.client
        limit = quota.take_or_refuse(len(message.payload), now)
        if limit is None:
            return False
        services.limit_report.acted(limit.kind, client.client_id, limit.text)
        services.dropped(client, message, DropReason.RATE_EXCEEDED)
        return True


def _is_literal(subject: bytes) -> bool:
    """What NATS lets a client publish to that wants its subjects checked."""
    try:
        check_subject(subject.decode())
    except (BadSubject, UnicodeDecodeError):
        return False
    return True
