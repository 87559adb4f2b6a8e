"""What clients of a simulation have sent and got, and what follows from it for the others."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.broker.shards.simulated_clients import Subscriber

#: By shard: which of its lives it is in.
Terms = dict[int, int]


@dataclass(eq=False)
class Message:
    name: str
    publisher: str
    number: int
    topic: str
    qos: int
    retain: bool
    #: Of the publisher.
    shard: int
    is_will: bool = False
    #: It deletes the retained message of its topic.
    deletes: bool = False
    #: Moments: when it was sent first, and acknowledged.
    sent: int = 0
    acked: int = 0
    #: When it was sent first, and acknowledged, in seconds.
    sent_at: float = 0.0
    acked_at: float = 0.0
    sends: int = 0
    #: What the publisher sends if it has to repeat it: PUBREL instead of PUBLISH.
    is_received: bool = False
    #: Nothing is promised of it: it may come, and at QoS 2 more than once.
    is_doubtful: bool = False
    #: Its client has closed in order in this life of the shard: nobody may get it, a will.
    cancelled_in: int = 0
    #: Subscriptions that it has to come to.
    expected: list["Subscription"] | None = None
    #: By shared filter: members that were online, and offline, all the time from when it was sent until it was
    #: acknowledged, and all was well.
    online: dict[str, list["Subscriber"]] = field(default_factory=dict[str, list["Subscriber"]])
    offline: dict[str, list["Subscriber"]] = field(default_factory=dict[str, list["Subscriber"]])
    #: Lives of shards when it was sent first, and when it was acknowledged.
    sent_terms: Terms = field(default_factory=dict[int, int])
    #: When it, or its PUBREL, was sent last.
    last_terms: Terms = field(default_factory=dict[int, int])

    def narrow(self, routed: Iterable["Subscription"]) -> None:
        """It was sent (again), where all of these are known."""
        if self.expected is None:
            self.expected = list(routed)
        else:
            known = set(routed)
            self.expected = [each for each in self.expected if each in known]

    def is_surely_older(self, other: "Message") -> bool:
        if self.publisher == other.publisher:
            return self.number < other.number and self.sends == 1 and self.qos == other.qos
        return 0 < self.acked < other.sent


@dataclass(eq=False)
class Subscription:
    client: "Subscriber"
    filter: str
    qos: int
    #: Moments, and seconds: SUBSCRIBE was sent, and SUBACK came.
    sent: int
    sent_at: float
    granted: int = 0
    granted_at: float = 0.0
    has_ended: bool = False
    #: By shard that knows of it: in which of its lives.
    routed: Terms = field(default_factory=dict[int, int])
    #: Its connection.
    line: object = None

    @property
    def group(self) -> str:
        return self.filter if self.filter.startswith("$share/") else ""

    @property
    def is_active(self) -> bool:
        return self.granted > 0 and not self.has_ended

    def matches(self, topic: str) -> bool:
        plain = self.filter.split("/", 2)[2] if self.group else self.filter
        return plain == topic or (plain.endswith("/+") and plain[:-1] == topic[: len(plain) - 1])


@dataclass(eq=False)
class Delivery:
    message: Message
    #: The session of the subscriber, and the lives of its shard and of the publisher's.
    session: int
    term: int
    shard_term: int
    qos: int
    dup: bool
    moment: int


class Ledger:
    def __init__(self) -> None:
        self.messages: dict[str, Message] = {}
        self.subscriptions: list[Subscription] = []
        self.wrong: list[str] = []

    def fault(self, text: str) -> None:
        self.wrong.append(text)

    # At the end

    def check(self, subscribers: Iterable["Subscriber"], terms: Terms) -> None:
        for subscriber in subscribers:
            self._check_order(subscriber)
            self._check_count(subscriber, terms)
        for message in self.messages.values():
            if message.is_will:
                self._judge_will(message, terms)
            if message.acked and not message.is_doubtful and message.qos:
                self._check_arrived(message)
        groups = {each.group for each in self.subscriptions if each.group}
        for group in groups:
            members = [each for each in self.subscriptions if each.group == group]
            for message in self.messages.values():
                self._check_shared(group, members, message, terms)

    def _judge_will(self, will: Message, terms: Terms) -> None:
        if will.expected is None:
            return
        will.acked = will.sent if terms[will.shard] == will.sent_terms[will.shard] else 0
        will.expected = [
            each for each in will.expected if terms[each.client.shard] == will.sent_terms[each.client.shard]
        ]

    def _check_arrived(self, message: Message) -> None:
        for each in message.expected or ():
            if each.is_active and not each.group and each.qos and not each.client.has_got(message):
                self.fault(
                    f"{each.client.name} never gets {message.name} on {message.topic}, acknowledged at {message.shard}"
                )

    def _check_order(self, subscriber: "Subscriber") -> None:
        last = dict[object, int]()
        seen = set[tuple[str, int]]()
        for delivery in subscriber.deliveries:
            message = delivery.message
            known = (message.name, delivery.session)
            was_wanted = any(each.client is subscriber and not each.group for each in message.expected or ())
            may_be_lost = message.sends > 1 and not delivery.qos  # with a connection
            if known in seen or message.is_will or may_be_lost or not was_wanted:
                continue  # repeated, it may come behind others to those who have not got it before
            seen.add(known)
            stream = message.publisher, message.topic, message.qos, delivery.session
            if message.number < last.get(stream, -1):
                self.fault(f"{subscriber.name} gets {message.name} on {message.topic} behind number {last[stream]}")
            last[stream] = max(message.number, last.get(stream, -1))

    def _check_count(self, subscriber: "Subscriber", terms: Terms) -> None:
        counts = dict[object, int]()
        for delivery in subscriber.deliveries:
            message = delivery.message
            if message.cancelled_in == terms[message.shard]:
                self.fault(f"{subscriber.name} gets the will {message.name} of a client that has closed in order")
            is_sent_again = message.qos == 1 and delivery.shard_term != message.sent_terms.get(message.shard)
            if message.is_doubtful or message.is_will or is_sent_again:
                continue
            if delivery.qos == 2:
                key, most = (message.name, delivery.session), 1
            elif delivery.dup:
                continue
            else:
                key, most = (message.name, delivery.session, delivery.term), 1 if message.qos == 2 else message.sends
            counts[key] = counts.get(key, 0) + 1
            if counts[key] == most + 1:
                self.fault(f"{subscriber.name} gets {message.name} on {message.topic} at QoS {delivery.qos} too often")

    def _check_shared(self, group: str, members: list[Subscription], message: Message, terms: Terms) -> None:
        if not members[0].matches(message.topic) or message.is_doubtful:
            return
        got = list(dict.fromkeys(each.client for each in members if each.client.has_got(message)))
        # a shard that was killed has forgotten which member it has sent it to
        is_sent_again = any(terms[shard] != term for shard, term in message.sent_terms.items())
        if len(got) > 1 and message.sends == 1 and not message.is_will and not is_sent_again:
            names = ", ".join([each.name for each in got])
            self.fault(f"{names} of one group get {message.name} all")
        routed = [each for each in message.expected or () if each.group == group and each.is_active]
        if message.acked and message.qos and routed and not got:
            self.fault(f"nobody of {group} gets {message.name}, acknowledged at {message.shard}")
