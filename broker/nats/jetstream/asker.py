"""One client as JetStream sees it: who asks, what it may read, and where its answers go.

An answer goes to the asker's own subscriptions, and to nobody else's. A message of a stream must not be sent by its
reader to a topic that it may not publish to.
"""

from __future__ import annotations

from collections import deque
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from trunkline.actors import Due
from trunkline.broker.metrics import DropReason
from trunkline.broker.session.access import Question
from trunkline.nats.jetstream.replies import ApiError
from trunkline.nats.protocol import encoder
from trunkline.nats.protocol.subjects import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from trunkline.broker.nats.dialogue import Dialogue
    from trunkline.broker.nats.jetstream.pulling import PullQueue
    from trunkline.broker.nats.standing import Standing
    from trunkline.broker.nats.subscriptions import SubjectSubscription, SubjectSubscriptions
    from trunkline.mqtt.message import Message

T = TypeVar("T")


class Asker:
    __slots__ = (
        "_actions",
        "_inbox",
        "_may_consume",
        "_poured",
        "_subscriptions",
        "dialogue",
        "queues",
        "standing",
    )

    def __init__(self, standing: Standing, dialogue: Dialogue, subscriptions: SubjectSubscriptions) -> None:
        self.standing = standing
        self.dialogue = dialogue
        self._subscriptions = subscriptions
        #: Where most clients want all of their answers: the subject without its last token, and the subscription.
        self._inbox: tuple[bytes, SubjectSubscription] | None = None
        #: What waits for a turn.
        self._actions: deque[Callable[[], object]] = deque()
        #: Set when it has read what was poured.
        self._poured = trio.Event()
        #: How many of its pulls wait in each queue.
        self.queues: dict[PullQueue, int] = {}
        #: Filters that it may subscribe to, while the access rules are the same.
        self._may_consume: tuple[int, set[str]] = (0, set())

    @property
    def is_over(self) -> bool:
        return self.dialogue.is_over

    @property
    def is_slow(self) -> bool:
        """It does not read what is sent to it as fast as that comes."""
        return self.dialogue.pending > self.standing.pressure.high_bytes

    def soon(self, action: Callable[[], object]) -> None:
        """Call `action` in a turn of the client's own. It is one action a turn, and others are read
        in between: a client may pull from thousands of consumers at once."""
        self._actions.append(action)
        if len(self._actions) == 1:
            self.dialogue.soon(self._act)

    def _act(self) -> None:
        self._actions[0]()
        self._actions.popleft()
        if self._actions:
            self.dialogue.scheduler.later(self.dialogue.ref, Due(self._act))

    def ask(self, question: Callable[[], Coroutine[Any, Any, T]], answered: Callable[[T], None]) -> None:
        """Answer a request in a task, however long that takes; those behind it wait."""
        self.dialogue.ask(question, answered, in_task=True, is_hook=False)

    # Answers

    def subscription(self, reply: bytes) -> SubjectSubscription | None:
        """Its own that gets what is sent to `reply`: the one that says most of it, if there are several."""
        prefix = reply.rpartition(b".")[0]
        inbox = self._inbox
        if inbox is not None and prefix == inbox[0] and self.is_there(inbox[1]):
            return inbox[1]
        subject = reply.decode(errors="replace")
        wanted = [each for each in self._subscriptions.by_sid.values() if matches(each.subject, subject)]
        if not wanted:
            return None
        narrowest = max(wanted, key=lambda each: len(commonprefix((each.subject, subject))))
        if narrowest.subject == f"{prefix.decode(errors='replace')}.*":
            self._inbox = prefix, narrowest
        return narrowest

    def answer(self, reply: bytes, payload: bytes, block: bytes = b"") -> None:
        """To a request."""
        subscription = self.subscription(reply) if reply else None
        if subscription is not None:
            self.give(subscription, reply, payload, b"", block)

    def give(
        self, subscription: SubjectSubscription, subject: bytes, payload: bytes, reply: bytes, block: bytes
    ) -> None:
        """A message of the broker's own, by this subscription."""
        if not self.standing.terms.headers:
            block = b""
        piece = encoder.deliver(subject, subscription.sid, payload, reply, block)
        self.dialogue.pieces.append(piece)
        subscription.delivered += 1
        self.standing.services.metrics.messages_out[0] += 1
        if subscription.delivered == subscription.maximum:
            self._subscriptions.end(subscription)
        self.dialogue.wrote(len(piece))

    async def pour(self, reply: bytes, answers: Sequence[tuple[bytes, bytes]]) -> None:
        """Several answers, payloads and blocks of headers, in a turn of the client's own. Returns when it reads as fast
        as they come."""
        done = trio.Event()

        def give() -> None:
            for payload, block in answers:
                self.answer(reply, payload, block)
            self.dialogue.flush()
            if self.is_slow:
                self._poured = done
            else:
                done.set()

        self.dialogue.soon(give)
        await done.wait()

    def drained(self) -> None:
        """All that was sent has been written."""
        self._poured.set()

    def is_there(self, subscription: SubjectSubscription) -> bool:
        return self._subscriptions.by_sid.get(subscription.sid) is subscription

    # Rights

    def may_read(self, message: Message) -> bool:
        """If not, that is logged and counted."""
        channel, services = self.standing.channel, self.standing.services
        if channel.may_read.get(message.topic) or services.access.may_read(channel, message.topic):
            return True
        services.dropped(channel.client, message, DropReason.READ_NOT_AUTHORIZED)
        return False

    def may_consume_at_once(self, filters: Iterable[str]) -> bool:
        """Whether it is known already that it may."""
        rules, known = self._may_consume
        return rules == self.standing.channel.rules and known.issuperset(filters)

    async def check_message(self, message: Message) -> None:
        """A single message is for whom might subscribe to its topic.

        Raises:
            ApiError: the asker might not.
        """
        channel, access = self.standing.channel, self.standing.services.access
        refusal = await access.refusal(Question(channel.client, "subscribe", message.topic))
        if refusal is not None or not self.may_read(message):
            raise ApiError(403, 0, f"permissions violation for subscription to {message.topic!r}")

    async def check_filters(self, filters: Iterable[str]) -> None:
        """A stream gives nobody what it might not subscribe to.

        Raises:
            ApiError: it may not subscribe to one of these.
        """
        channel, access = self.standing.channel, self.standing.services.access
        if self._may_consume[0] != channel.rules:
            self._may_consume = (channel.rules, set())
        known = self._may_consume[1]
        for filter in filters:
            if filter in known:
                continue
            if await access.refusal(Question(channel.client, "subscribe", filter)) is not None:
                raise ApiError(403, 0, f"permissions violation for subscription to the topic filter {filter!r}")
            known.add(filter)
