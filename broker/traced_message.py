"""One traced message: what happened to it for every subscriber, step by step, and the rows that list it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trunkline.broker.guid import to_text

if TYPE_CHECKING:
    from trunkline.mqtt.message import Message
    from trunkline.mqtt.properties import Properties

ROUTED: Final = "routed"
QUEUED: Final = "queued"
DELIVERED: Final = "delivered"
ACKED: Final = "acked"
COMPLETED: Final = "completed"
DROPPED: Final = "dropped"
#: The broker has the message but has not routed it yet.
HELD: Final = "held"

NO_SUBSCRIBERS: Final = "no_subscribers"
#: Lost by a fault that a test injected, not by the broker.
FAULT: Final = "fault"

#: Bytes, roughly, of a message without its payload, of a subscriber and of a step.
_MESSAGE_BYTES: Final = 700
_SUBSCRIBER_BYTES: Final = 200
_STEP_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class Step:
    #: Seconds since the epoch.
    at: float
    word: str
    #: Why, if it was dropped.
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a message for one subscriber."""

    client_id: str
    #: The name of the last step; empty if there was none.
    state: str
    #: Why, if it was dropped.
    reason: str
    #: How often it was written to the client's connection, and not lost there by a test's fault.
    deliveries: int
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        if not self.steps:
            return "did not go there"
        return ", ".join(f"{step.word} ({step.reason})" if step.reason else step.word for step in self.steps)


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message, and the number of subscribers at each stage. One subscriber may count in several stages."""

    guid: str
    topic: str
    #: The topic that its publisher used; it differs from `topic` if a hook has changed that.
    published_to: str
    publisher: str
    qos: int
    retain: bool
    #: Its beginning, and the length of the whole.
    payload: bytes
    size: int
    #: Seconds since the epoch.
    published_at: float
    #: "routed", "dropped", or "held" (by a hook that took it, or until its PUBREL); empty if it was published before
    #: the trace began, or has been forgotten since.
    state: str
    #: Why, if it was dropped before it was routed to anybody.
    reason: str
    receivers: int
    #: Who else got it: streams, by name, and other workers, where a row of their own says more.
    others: tuple[str, ...]
    #: Subscribers for which it waits now.
    waiting: int
    delivered: int
    acked: int
    completed: int
    dropped: int
    #: Steps that were not kept, because there were too many.
    left_out: int


class TracedMessage:
    """One message with its current state. It may be read in any thread."""

    __slots__ = (
        "_content",
        "_outcomes",
        "_own",
        "begun",
        "guid",
        "kept",
        "left_out",
        "number",
        "others",
        "payload",
        "properties",
        "published_at",
        "published_to",
        "publisher",
        "qos",
        "retain",
        "routed",
        "size",
        "steps",
        "topic",
        "weight",
        "whole",
    )

    def __init__(self, message: Message, number: int, payload_bytes: int, whole: bool) -> None:
        """`whole`: it is traced itself, and not only for some of its subscribers."""
        self.guid = message.guid
        #: Numbers messages in the order of their first step.
        self.number = number
        self.published_to = message.topic
        self.publisher = message.publisher
        self.published_at = message.timestamp
        self.whole = whole
        #: Whether it has been traced since its publication.
        self.begun = False
        self.routed = False
        #: Who got it besides sessions.
        self.others: tuple[str, ...] = ()
        #: Whether it is still kept.
        self.kept = True
        self.steps = 0
        #: Steps that were not kept, because there were too many.
        self.left_out = 0
        #: Bytes, roughly.
        self.weight = self._content = 0
        self._own: list[tuple[float, str, str]] = []
        self._outcomes: dict[str, list[tuple[float, str, str]]] = {}
        self.take(message, payload_bytes)

    def take(self, message: Message, payload_bytes: int) -> int:
        """Update the message, which a hook may have changed. Returns by how many bytes it has grown."""
        self.topic = message.topic
        self.qos = message.qos
        self.retain = message.retain
        self.size = len(message.payload)
        self.payload = message.payload[:payload_bytes]
        self.properties: Properties = message.properties
        content = _MESSAGE_BYTES + len(self.payload)
        if message.properties:
            content += len(repr(message.properties))
        change = content - self._content
        self._content = content
        self.weight += change
        return change

    def go_to(self, others: tuple[str, ...]) -> int:
        """It goes there, besides sessions. Returns by how many bytes it has grown."""
        change = sum(map(len, others)) - sum(map(len, self.others))
        self.others = others
        self.weight += change
        return change

    def add(self, client_id: str, at: float, word: str, reason: str) -> int:
        """Add a step for one subscriber, or without a client id for the message as a whole. Returns by how many bytes
        it has grown."""
        self.steps += 1
        steps = self._outcomes.get(client_id) if client_id else self._own
        weight = _STEP_BYTES
        if steps is None:
            steps = self._outcomes[client_id] = []
            weight += _SUBSCRIBER_BYTES
        steps.append((at, word, reason))
        self.weight += weight
        return weight

    @property
    def state(self) -> str:
        """The outcome of the message as a whole: "routed", "dropped", "held", or empty if it is unknown."""
        if self._own:
            return self._own[-1][1]
        return HELD if self.begun else ""

    @property
    def reason(self) -> str:
        """Why the message as a whole was dropped."""
        return self._own[-1][2] if self._own else ""

    @property
    def own_steps(self) -> tuple[Step, ...]:
        """The steps of the message as a whole."""
        return tuple([Step(*step) for step in self._own])

    @property
    def clients(self) -> tuple[str, ...]:
        """Client ids of the subscribers with an outcome, in the order of their first step."""
        return tuple(self._outcomes)

    def concerns(self, client_id: str) -> bool:
        """Whether the client published it or was to get it."""
        return client_id == self.publisher or client_id in self._outcomes

    def outcome(self, client_id: str) -> Outcome:
        """Without steps, if the message was not for this subscriber."""
        steps = tuple([Step(*step) for step in self._outcomes.get(client_id, ())])
        last = steps[-1] if steps else Step(0.0, "", "")
        deliveries = sum(step.word == DELIVERED for step in steps) - sum(step.reason == FAULT for step in steps)
        return Outcome(client_id, last.word, last.reason, deliveries, steps)

    def outcomes(self, after: str, limit: int) -> tuple[list[Outcome], str | None]:
        """Those for the next subscribers behind the client id `after`, in order of client id, and the cursor of the
        next page; None at the end."""
        following = sorted([client_id for client_id in self._outcomes if client_id > after])
        page = [self.outcome(client_id) for client_id in following[:limit]]
        return page, following[limit - 1] if len(following) > limit else None

    def row(self) -> MessageRow:
        lives = [(steps[-1][1], {word for _, word, _ in steps}) for steps in list(self._outcomes.values())]
        return MessageRow(
            to_text(self.guid),
            self.topic,
            self.published_to,
            self.publisher,
            self.qos,
            self.retain,
            self.payload,
            self.size,
            self.published_at,
            self.state,
            self.reason,
            len(lives),
            self.others,
            sum(last == QUEUED for last, _ in lives),
            sum(DELIVERED in words for _, words in lives),
            sum(ACKED in words for _, words in lives),
            sum(COMPLETED in words for _, words in lives),
            sum(last == DROPPED for last, _ in lives),
            self.left_out,
        )
