"""A session's two halves and a server, step by step as Hypothesis chooses: nothing that was acknowledged is lost, what
QoS 2 carries comes once, order is kept, and each request ends once."""

from collections import deque
from typing import TYPE_CHECKING

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.client.rig import Rig, publish
from trunkline.client.errors import RequestDiscarded
from trunkline.client.requests import PublishRequest, SubscribeRequest
from trunkline.mqtt.packets import (
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionRequest,
)

if TYPE_CHECKING:
    from trunkline.mqtt.session.receiving import Handover

#: Of each side.
WINDOW = 5
TOPIC = "t"


class Server:
    """The other end of the session: it outlives connections as the client does."""

    def __init__(self) -> None:
        #: Payloads that its subscribers got, and packet ids of QoS 2 between PUBLISH and PUBREL.
        self.taken: list[bytes] = []
        self.open_ids: set[int] = set()
        #: Messages to the client that are not acknowledged: by packet id, in the order in which they were first sent.
        self.unanswered: dict[int, Publish | Pubrel] = {}
        self.next_id = 0
        #: On their way to the client.
        self.output: deque[Packet] = deque()

    def lose(self) -> None:
        self.output.clear()

    def resume(self) -> None:
        for packet in self.unanswered.values():
            if isinstance(packet, Publish):
                packet.dup = True
            self.output.append(packet)

    def publish(self, payload: bytes, qos: int) -> None:
        self.next_id += 1
        packet = publish(TOPIC, payload, qos, self.next_id)
        self.unanswered[self.next_id] = packet
        self.output.append(packet)

    def receive(self, packet: Packet) -> None:
        match packet:
            case Publish(qos=2):
                if packet.packet_id not in self.open_ids:
                    self.open_ids.add(packet.packet_id)
                    self.taken.append(packet.payload)
                self.output.append(Pubrec(packet.packet_id))
            case Publish(qos=1):
                self.taken.append(packet.payload)
                self.output.append(Puback(packet.packet_id))
            case Pubrel():
                self.open_ids.discard(packet.packet_id)
                self.output.append(Pubcomp(packet.packet_id))
            case Puback() | Pubcomp():
                del self.unanswered[packet.packet_id]
            case Pubrec():
                self.unanswered[packet.packet_id] = rel = Pubrel(packet.packet_id)
                self.output.append(rel)
            case Subscribe():
                self.output.append(Suback(packet.packet_id, [1]))
            case _:
                raise AssertionError(packet)


class Session(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(receive_maximum=WINDOW)
        self.server = Server()
        #: With their payloads, which a request need not keep.
        self.requests: list[tuple[PublishRequest, list[bytes]]] = []
        self.ends: list[PublishRequest] = []
        #: QoS and payload of what the server sent, payloads that the client has handed over, and whose acknowledgement
        #: its user owes.
        self.told: list[tuple[int, bytes]] = []
        self.got: list[bytes] = []
        self.owed: list[tuple[Handover, int]] = []
        #: Payloads that the user has acknowledged.
        self.acknowledged: set[bytes] = set()
        self.open(session_present=False)

    def open(self, *, session_present: bool = True) -> None:
        for packet in self.rig.open(session_present=session_present, properties={"receive_maximum": WINDOW}):
            self.write(packet)

    def write(self, packet: Packet) -> None:
        if isinstance(packet, Puback | Pubrec):
            answered = self.server.unanswered[packet.packet_id]
            assert isinstance(answered, Publish)
            assert answered.payload in self.acknowledged
        self.server.receive(packet)

    # The user

    @rule(qos=st.sampled_from((1, 2)), count=st.integers(1, 4))
    def publish(self, qos: int, count: int) -> None:
        number = sum(len(payloads) for _, payloads in self.requests)
        payloads = [b"%d" % (number + each) for each in range(count)]
        request = PublishRequest(TOPIC, payloads, qos)
        request.on_done = lambda: self.ends.append(request)
        self.requests.append((request, payloads))
        self.rig.add(request)

    @rule()
    def subscribe(self) -> None:
        self.rig.add(SubscribeRequest([SubscriptionRequest("a", 1)]))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request, _ = data.draw(st.sampled_from(self.requests))
        self.rig.outgoing.abandon(request)

    @rule()
    def discard(self) -> None:
        self.rig.outgoing.discard_oldest(RequestDiscarded("full"))

    @precondition(lambda self: self.owed)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        self.acknowledge_next(data.draw(st.integers(0, len(self.owed) - 1)))

    def acknowledge_next(self, place: int = 0) -> None:
        handover, number = self.owed.pop(place)
        self.acknowledged.add(handover.publication.payloads[number])
        assert handover.accept is not None
        handover.accept(number)

    # The network

    @rule()
    def client_writes(self) -> None:
        for packet in self.rig.sent():
            self.write(packet)

    @precondition(lambda self: self.server.output)
    @rule(data=st.data())
    def client_reads(self, data: st.DataObject) -> None:
        output = self.server.output
        number = data.draw(st.integers(1, len(output)))
        self.read(number)

    def read(self, number: int) -> None:
        handovers = self.rig.give(*[self.server.output.popleft() for _ in range(number)])
        assert self.rig.connection.error is None
        for handover in handovers:
            self.got += handover.publication.payloads
            self.owed += [(handover, each) for each in range(handover.publication.count)]

    @rule(drop=st.booleans())
    def lose(self, drop: bool) -> None:
        """What the client has written may have come, or not."""
        if not drop:
            self.client_writes()
        self.rig.sent()
        self.server.lose()
        self.rig = self.rig.again(receive_maximum=WINDOW)
        self.server.resume()
        self.open()

    # The server

    @precondition(lambda self: len(self.server.unanswered) < WINDOW)
    @rule(qos=st.sampled_from((1, 2)))
    def server_publishes(self, qos: int) -> None:
        payload = b"%d" % len(self.told)
        self.told.append((qos, payload))
        self.server.publish(payload, qos)

    # What holds

    @invariant()
    def window(self) -> None:
        assert self.rig.outgoing.in_flight <= WINDOW + 64
        assert len(self.server.open_ids) <= WINDOW

    @invariant()
    def each_request_ends_once(self) -> None:
        assert len(set(map(id, self.ends))) == len(self.ends)

    def teardown(self) -> None:
        """Everything is answered in the end."""
        while True:
            self.client_writes()
            if self.server.output:
                self.read(len(self.server.output))
            elif self.owed:
                self.acknowledge_next()
            else:
                break
        assert not self.server.unanswered
        assert not self.rig.outgoing.is_waiting
        assert len(self.ends) == len(self.requests)
        taken = self.server.taken
        first = list(dict.fromkeys(taken))
        assert first == sorted(first, key=int)
        for request, payloads in self.requests:
            found = [taken.count(payload) for payload in payloads]
            if request.qos == 2:
                assert max(found) <= 1
            if request.error is None and not request.abandoned:
                assert all(found)
        assert list(dict.fromkeys(self.got)) == [payload for _, payload in self.told]
        for qos, payload in self.told:
            if qos == 2:
                assert self.got.count(payload) == 1


TestSession = Session.TestCase
TestSession.settings = hypothesis_settings(max_examples=150, stateful_step_count=40)
