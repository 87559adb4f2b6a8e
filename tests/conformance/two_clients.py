"""A plain model of a correct broker with two client ids: what each connection must be sent, step by step.

It knows no batches, no slices and no mailboxes. A step is handled to its end before the next one, so that everything
but the broker's free choices is certain: the packet ids, the order of different topics, and how much waits behind a
full window.
"""

from dataclasses import dataclass, field
from math import ceil, inf

from tests.conformance import raw
from trunkline.mqtt.topics import matches

#: The broker's settings in the model's words.
MAX_INFLIGHT = 5
RECEIVE_MAXIMUM = 4
MAX_AWAITING_REL = 6
MAX_ALIAS = 3
MAX_ALIAS_OUT = 2
MAX_PACKET_SIZE = 5000
EXPIRY_311 = 7200

PUBACK, PUBREC, PUBREL, PUBCOMP = raw.PUBACK, raw.PUBREC, raw.PUBREL & 0xF0, raw.PUBCOMP
SUBACK, UNSUBACK, PINGRESP, DISCONNECT = raw.SUBACK, raw.UNSUBACK, raw.PINGRESP[0], raw.DISCONNECT
NOT_FOUND, NO_MATCHING, NO_SUBSCRIPTION = 0x92, 0x10, 0x11

#: Type, packet id, and the reason codes that are right; a SUBACK has one of them for each filter.
Answer = tuple[int, int, list[set[int]]]


@dataclass
class Message:
    topic: str
    payload: bytes
    qos: int
    retain: bool
    publisher: str
    expires_at: float = inf
    content_type: str = ""


@dataclass
class Subscription:
    qos: int
    no_local: bool = False
    as_published: bool = False
    handling: int = 0
    identifier: int | None = None


@dataclass
class Delivery:
    message: Message
    qos: int
    retain: bool
    identifiers: list[int]
    #: The filter whose subscription asked for this retained message; empty for a live one.
    replay_of: str = ""
    #: Whether the broker may have given it up: what asked for it is over, or it was too large for a connection.
    optional: bool = False
    #: Waits for this acknowledgement.
    state: int = 0

    def is_sent_as(self, packet: raw.Received, topic: str, version: int) -> bool:
        message = self.message
        expected = (message.topic, message.payload, self.qos, self.retain)
        if expected != (topic, packet.payload, packet.qos, packet.retain):
            return False
        if version < 5:
            return True
        return (
            sorted(map(int, packet.all(raw.SUBSCRIPTION_IDENTIFIER))) == self.identifiers  # type: ignore[arg-type]
            and (packet.get(3) or "") == message.content_type
        )


@dataclass
class Will:
    message: Message
    delay: float


@dataclass
class Connection:
    """Of one client, from its CONNACK to its end; and what is to come there."""

    client_id: str
    version: int
    receive_maximum: int
    alias_maximum: int
    max_packet_size: int
    resumed: bool
    #: QoS 2 messages that earlier connections have left open: they do not count on this one.
    left_open: int = 0
    #: Its session; that of the client id may be another one already.
    session: "Session | None" = None
    aliases_in: dict[int, str] = field(default_factory=dict[int, str])
    aliases_out: dict[int, str] = field(default_factory=dict[int, str])
    answers: list[Answer] = field(default_factory=list[Answer])
    #: PUBRELs: packet ids and reasons.
    releases: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    #: Packet ids that are to be sent again, in order.
    again: list[int] = field(default_factory=list[int])
    #: What was to be sent again when the client acknowledged it: in this step it may have been on its way.
    late: dict[int, Delivery] = field(default_factory=dict[int, Delivery])
    #: Packet ids whose PUBLISH went to this connection and is not complete.
    open: set[int] = field(default_factory=set[int])
    #: Reasons of the DISCONNECT with which the broker ends it, if it does; empty: none is sent.
    ended: set[int] | None = None

    @property
    def window(self) -> int:
        return min(MAX_INFLIGHT, self.receive_maximum)


@dataclass
class Session:
    client_id: str
    expiry: float = 0.0
    left_at: float = 0.0
    will: Will | None = None
    connection: Connection | None = None
    subscriptions: dict[str, Subscription] = field(default_factory=dict[str, Subscription])
    queue: list[Delivery] = field(default_factory=list[Delivery])
    inflight: dict[int, Delivery] = field(default_factory=dict[int, Delivery])
    awaiting_rel: dict[int, Message] = field(default_factory=dict[int, Message])


class Violation(Exception):
    """The client broke the protocol: the reasons that a DISCONNECT may give."""

    def __init__(self, *reasons: int) -> None:
        self.reasons = set(reasons)


class Model:
    def __init__(self) -> None:
        self.now = 0.0
        self.sessions: dict[str, Session] = {}
        self.retained: dict[str, Message] = {}

    # Connections

    def connect(self, connection: Connection, *, clean: bool, expiry: float, will: Will | None) -> None:
        session = self.sessions.get(connection.client_id)
        if session is not None and session.connection is not None:
            self._drop_connection(session, {0x8E})
            if self.sessions.get(connection.client_id) is not session:
                session = None
        if session is not None and clean:
            self._end(session)
            session = None
        connection.resumed = session is not None
        if session is None:
            session = self.sessions[connection.client_id] = Session(connection.client_id)
        connection.session = session
        connection.left_open = len(session.awaiting_rel)
        session.connection, session.expiry, session.will = connection, expiry, will
        for each in session.inflight.values():  # it may count as acknowledged
            each.optional = each.optional or len(each.message.payload) > connection.max_packet_size
        connection.again = [pid for pid, each in session.inflight.items() if each.state != PUBCOMP]
        connection.releases = [(pid, 0) for pid, each in session.inflight.items() if each.state == PUBCOMP]

    def _drop_connection(self, session: Session, reasons: set[int]) -> None:
        connection = session.connection
        assert connection is not None
        connection.ended = reasons
        session.connection = None
        session.left_at = self.now
        for each in session.queue:
            each.optional = each.optional or each.replay_of != ""
        if session.expiry == 0:
            self._end(session)
        elif session.will is not None and session.will.delay == 0:
            self._publish_will(session)

    def _end(self, session: Session) -> None:
        del self.sessions[session.client_id]
        session.subscriptions.clear()
        self._publish_will(session)

    def _publish_will(self, session: Session) -> None:
        will, session.will = session.will, None
        if will is not None:
            self.route(will.message)

    def lost(self, connection: Connection) -> None:
        session = self._session(connection)
        if session is not None:
            self._drop_connection(session, set())

    def violated(self, connection: Connection, reasons: set[int]) -> None:
        session = self._session(connection)
        if session is not None:
            self._drop_connection(session, reasons)

    def disconnect(self, connection: Connection, reason: int, expiry: float | None) -> None:
        session = self._session(connection)
        assert session is not None
        if expiry is not None:
            if expiry and not session.expiry:
                raise Violation(0x82)
            session.expiry = expiry
        if reason == 0:
            session.will = None
        self._drop_connection(session, set())

    def _session(self, connection: Connection) -> Session | None:
        session = self.sessions.get(connection.client_id)
        return session if session is not None and session.connection is connection else None

    def session(self, connection: Connection) -> Session:
        session = self._session(connection)
        assert session is not None
        return session

    def advance(self, seconds: float) -> None:
        """Each moment at which something is due is a step of its own."""
        end = self.now + seconds
        while True:
            due = [
                (moment, number, session)
                for number, session in enumerate(self.sessions.values())
                if session.connection is None
                for moment in (
                    session.left_at + session.expiry,
                    session.left_at + session.will.delay if session.will else inf,
                )
                if moment <= end
            ]
            if not due:
                break
            self.now, _, session = min(due, key=lambda each: each[:2])
            if self.now >= session.left_at + session.expiry:
                self._end(session)
            else:
                self._publish_will(session)
        self.now = end

    # Messages

    def route(self, message: Message) -> bool:
        """Returns whether somebody gets it."""
        if message.retain:
            self.retained.pop(message.topic, None)
            if message.payload:
                self.retained[message.topic] = message
        found = False
        for session in self.sessions.values():
            wanted = [
                each
                for filter, each in session.subscriptions.items()
                if matches(filter, message.topic) and not (each.no_local and message.publisher == session.client_id)
            ]
            if wanted:
                found = True
                qos = min(message.qos, max(each.qos for each in wanted))
                retain = message.retain and any(each.as_published for each in wanted)
                identifiers = sorted(each.identifier for each in wanted if each.identifier is not None)
                session.queue.append(Delivery(message, qos, retain, identifiers))
        return found

    def publish(
        self, connection: Connection, message: Message, packet_id: int, alias: int | None, written: str
    ) -> None:
        """`written` is the topic in the packet, which an alias may replace."""
        session = self.session(connection)
        message.topic = written
        if alias is not None:
            if alias > MAX_ALIAS:
                raise Violation(0x94)
            if not written and alias not in connection.aliases_in:
                raise Violation(0x82)
            message.topic = connection.aliases_in[alias] = written or connection.aliases_in[alias]
        again = message.qos == 2 and packet_id in session.awaiting_rel
        limited = connection.version == 5 and message.qos and packet_id not in session.awaiting_rel
        if limited and len(session.awaiting_rel) >= RECEIVE_MAXIMUM + connection.left_open:
            raise Violation(0x93)
        if again:
            connection.answers.append((PUBREC, packet_id, [{0}]))
        elif message.qos == 2:
            if len(session.awaiting_rel) >= MAX_AWAITING_REL:
                raise Violation(0x97)
            session.awaiting_rel[packet_id] = message
            heard = self._is_heard(message)
            connection.answers.append(
                (PUBREC, packet_id, [{0} if heard or connection.version < 5 else {0, NO_MATCHING}])
            )
        else:
            found = self.route(message)
            if message.qos:
                right = {0} if found or connection.version < 5 else {0, NO_MATCHING}
                connection.answers.append((PUBACK, packet_id, [right]))

    def _is_heard(self, message: Message) -> bool:
        return any(
            matches(filter, message.topic) and not (each.no_local and message.publisher == session.client_id)
            for session in self.sessions.values()
            for filter, each in session.subscriptions.items()
        )

    def pubrel(self, connection: Connection, packet_id: int) -> None:
        message = self.session(connection).awaiting_rel.pop(packet_id, None)
        if message is not None and message.expires_at > self.now:
            self.route(message)
        elif message is not None and message.retain:
            self.retained.pop(message.topic, None)
        missing = message is None and connection.version == 5 and not connection.resumed
        connection.answers.append((PUBCOMP, packet_id, [{NOT_FOUND} if missing else {0}]))

    def acknowledge(self, connection: Connection, kind: int, packet_id: int, reason: int = 0) -> None:
        """PUBACK, PUBREC or PUBCOMP from the client."""
        inflight = self.session(connection).inflight
        found = inflight.get(packet_id)
        refused = reason >= 0x80
        if kind == PUBREC and not refused and (found is None or found.state == PUBCOMP):
            connection.releases.append((packet_id, NOT_FOUND if found is None and connection.version == 5 else 0))
            return
        if found is None:
            return
        if found.state != kind:
            raise Violation(0x82)
        if packet_id in connection.again:
            connection.again.remove(packet_id)
            connection.late[packet_id] = found
        if kind == PUBREC and not refused:
            found.state = PUBCOMP
            del inflight[packet_id]
            inflight[packet_id] = found
            connection.releases.append((packet_id, 0))
        else:
            del inflight[packet_id]
            connection.open.discard(packet_id)

    # Subscriptions

    def subscribe(self, connection: Connection, packet_id: int, wanted: dict[str, Subscription]) -> None:
        session = self.session(connection)
        connection.answers.append((SUBACK, packet_id, [{each.qos} for each in wanted.values()]))
        for filter, each in wanted.items():
            fresh = filter not in session.subscriptions
            session.subscriptions[filter] = each
            if each.handling == 2 or (each.handling == 1 and not fresh):
                continue
            self._end_replay(session, filter)  # it starts anew
            identifiers = [] if each.identifier is None else [each.identifier]
            for message in self.retained.values():
                if matches(filter, message.topic) and message.expires_at > self.now:
                    session.queue.append(Delivery(message, min(message.qos, each.qos), True, identifiers, filter))

    def unsubscribe(self, connection: Connection, packet_id: int, filters: list[str]) -> None:
        session = self.session(connection)
        reasons = [{0} if session.subscriptions.pop(each, None) is not None else {NO_SUBSCRIPTION} for each in filters]
        for each in filters:
            self._end_replay(session, each)
        connection.answers.append((UNSUBACK, packet_id, reasons if connection.version == 5 else []))

    @staticmethod
    def _end_replay(session: Session, filter: str) -> None:
        for each in session.queue:
            each.optional = each.optional or each.replay_of == filter

    # What came

    def check(self, connection: Connection, came: list[raw.Received], closed: bool) -> None:
        """Everything that the broker sent to a connection in a step is right, and nothing is missing."""
        answers = list[tuple[int, int, list[int]]]()
        releases = list[tuple[int, int]]()
        for packet in came:
            assert not answers or answers[-1][0] != DISCONNECT, "something comes after a DISCONNECT"
            if packet.type == raw.PUBLISH:
                self._delivered(connection, packet)
            elif packet.type == PUBREL:
                releases.append((packet.packet_id, packet.reason))
            else:
                reasons = packet.reasons or ([] if packet.type == UNSUBACK else [packet.reason])
                answers.append((packet.type, packet.packet_id, reasons))
        farewell = answers.pop() if answers and answers[-1][0] == DISCONNECT else None
        if connection.ended is not None:
            assert closed, f"it is not closed: {connection.ended}"
            if connection.version == 5 and connection.ended:
                assert farewell is not None, "no DISCONNECT"
                assert farewell[2][0] in connection.ended, (farewell, connection.ended)
            else:
                assert farewell is None, farewell
        else:
            assert not closed, "the broker has closed the connection"
            assert farewell is None, farewell
        expected = connection.answers
        # what was on its way when the connection ended may be missing
        assert len(answers) <= len(expected), (answers, expected)
        assert len(answers) == len(expected) or connection.ended is not None, (answers, expected)
        for got, right in zip(answers, expected, strict=False):
            assert got[:2] == right[:2], (answers, expected)
            assert len(got[2]) == len(right[2]), (answers, expected)
            assert all(code in codes for code, codes in zip(got[2], right[2], strict=True)), (got, right)
        if connection.ended is None:
            assert releases == connection.releases, (releases, connection.releases)
            self._nothing_held_back(connection)
        assert connection.session is not None
        for each in connection.session.queue:  # it may have been thrown away
            each.optional = each.optional or len(each.message.payload) > connection.max_packet_size
        connection.answers, connection.releases = [], []
        connection.late.clear()

    def _delivered(self, connection: Connection, packet: raw.Received) -> None:
        session = connection.session
        assert session is not None
        topic = packet.topic
        alias = packet.get(raw.TOPIC_ALIAS)
        if alias is not None:
            assert isinstance(alias, int)
            assert 0 < alias <= connection.alias_maximum, f"alias {alias}"
            assert topic or alias in connection.aliases_out, f"alias {alias} was never set"
            topic = connection.aliases_out[alias] = topic or connection.aliases_out[alias]
        assert len(packet.data) <= connection.max_packet_size
        if packet.dup and packet.packet_id in connection.late:
            sent = connection.late.pop(packet.packet_id)
            assert sent.is_sent_as(packet, topic, connection.version), (sent, packet)
        elif packet.dup:
            while connection.again and connection.again[0] != packet.packet_id:
                assert session.inflight[connection.again.pop(0)].optional, "sent again out of order"
            assert connection.again, f"sent again without need: {packet}"
            connection.again.pop(0)
            sent = session.inflight[packet.packet_id]
            assert sent.is_sent_as(packet, topic, connection.version), (sent, packet)
        else:
            behind = [pid for pid in connection.again if not session.inflight[pid].optional]
            assert not behind or not packet.qos, "a new message before those that are sent again"
            number = self._place(connection, packet, topic)
            sent = session.queue[number]
            overtaken = self._overtaken(connection, number)
            assert not overtaken, f"{packet} overtook {overtaken}"
            del session.queue[number]
            if packet.qos:
                assert packet.packet_id, "packet id 0"
                open = session.inflight.get(packet.packet_id)
                assert open is None or open.optional, f"packet id {packet.packet_id} is in use"
                sent.state = PUBACK if packet.qos == 1 else PUBREC
                session.inflight[packet.packet_id] = sent
        if packet.qos and session.inflight.get(packet.packet_id) is sent:
            connection.open.add(packet.packet_id)
            assert len(connection.open) <= connection.receive_maximum, "above the receive maximum"
        if connection.version == 5:
            expires_at = sent.message.expires_at
            if not packet.dup:
                assert expires_at > self.now, f"expired: {sent}"
            right = None if expires_at == inf else max(0, ceil(expires_at - self.now))
            assert packet.get(raw.MESSAGE_EXPIRY) == right, (packet, right)

    def _place(self, connection: Connection, packet: raw.Received, topic: str) -> int:
        """Where in the queue the message of this packet waits. Of deliveries that look alike, the first one that must
        come, if the order allows it: those that need not come may have been given up."""
        assert connection.session is not None
        queue = connection.session.queue
        fits = [number for number, each in enumerate(queue) if each.is_sent_as(packet, topic, connection.version)]
        assert fits, f"{connection.client_id} got {packet}, and waits for {queue}"
        required = (number for number in fits if not self._gone(connection, queue[number]))
        return next((number for number in required if not self._overtaken(connection, number)), fits[0])

    def _overtaken(self, connection: Connection, number: int) -> list[Delivery]:
        """What waits before this place of the queue and must come before it."""
        assert connection.session is not None
        queue = connection.session.queue
        return [
            each
            for each in queue[:number]
            if (each.message.topic, each.qos) == (queue[number].message.topic, queue[number].qos)
            and not self._gone(connection, each)
        ]

    def _gone(self, connection: Connection, delivery: Delivery) -> bool:
        """Whether this waiting message need not come any more."""
        message = delivery.message
        return (
            delivery.optional
            or message.expires_at <= self.now
            or len(message.payload) > connection.max_packet_size
            or (delivery.replay_of != "" and self.retained.get(message.topic) is not message)
        )

    def _nothing_held_back(self, connection: Connection) -> None:
        session = self.session(connection)
        if len(session.inflight) >= connection.window:
            return
        behind = [pid for pid in connection.again if not session.inflight[pid].optional]
        assert not behind, f"not sent again: {behind}"
        held = [each for each in session.queue if not self._gone(connection, each)]
        assert not held, f"{connection.client_id} does not get {held}"
        session.queue.clear()
