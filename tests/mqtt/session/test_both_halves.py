"""Two halves of a session, joined by a link that Hypothesis delays, cuts and makes anew: what QoS 2 carries comes once,
what QoS 1 carries comes, in order, never more at a time than the receiver takes, and in the end nothing is open."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode, encode_run
from trunkline.mqtt.frames import encode_publish
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Acknowledgement, Acknowledgements, PacketType, Pubcomp, Publish, Pubrel
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.receiving import Receiving
from trunkline.mqtt.session.states import Effect, ReceiptEffect, ReceiptState
from trunkline.mqtt.session.window import Inflight
from trunkline.mqtt.versions import Version

V5 = Version.V5
#: So few that they are taken again soon.
PACKET_IDS = range(1, 8)


def publication(numbers: Sequence[int], qos: int) -> Publication:
    messages = [Message("t", b"%06d" % number, qos) for number in numbers]
    if len(messages) == 1:
        return messages[0]
    packets = [encode_publish(message, V5, qos=qos, packet_id=1) for message in messages]
    size = len(packets[0])
    starts = range(0, size * len(packets), size)
    return PublishBatch(["t"], 0x30 | qos << 1, V5, b"".join(packets), starts, [1] * len(packets))


class Line:
    """One direction of a connection."""

    def __init__(self, *, server: bool) -> None:
        self.waiting = b""
        self._decoder = Decoder(server=server, version=V5, gathers=True)

    def deliver(self, size: int) -> list[Publish | PublishBatch | Acknowledgement | Acknowledgements]:
        data, self.waiting = self.waiting[:size], self.waiting[size:]
        packets = self._decoder.feed(data)
        assert self._decoder.error is None
        found: list[Publish | PublishBatch | Acknowledgement | Acknowledgements] = []
        for packet in packets:
            assert isinstance(packet, Publish | PublishBatch | Acknowledgement | Acknowledgements)
            found.append(packet)
        return found


class Sender:
    def __init__(self) -> None:
        self.window = Inflight[int](0, max_id=PACKET_IDS[-1])
        #: Numbers of messages that were not sent yet, and their QoS.
        self.queue: deque[tuple[int, int]] = deque()
        self.maximum = 0
        #: PUBLISH packets of this connection without their last acknowledgement.
        self.unanswered: set[int] = set()
        #: What may not be sent again, and what was given up because of that.
        self.forbidden: set[bytes] = set()
        self.withdrawn: set[bytes] = set()

    def attach(self, maximum: int) -> None:
        self.maximum = maximum
        self.unanswered.clear()
        self.window.resume(maximum)

    def _published(self, packet_ids: Sequence[int]) -> None:
        self.unanswered.update(packet_ids)
        assert len(self.unanswered) <= self.maximum  # [MQTT-3.3.4-9]

    def pump(self) -> bytes:
        """All that may be sent."""
        pieces: list[bytes] = []
        while (again := self.window.next_again(0.0)) is not None:
            effect, packet_id, entry = again
            if effect is Effect.PUBLISH:
                message = entry.message(packet_id)
                if message.payload in self.forbidden:
                    self.withdrawn.add(message.payload)
                    effect = self.window.withdraw(packet_id, 0.0)
                else:
                    self._published([packet_id])
                    pieces.append(encode_publish(message, V5, qos=message.qos, dup=True, packet_id=packet_id))
            if effect is Effect.PUBREL:
                pieces.append(encode_run(PacketType.PUBREL, (packet_id,)))
        while not self.window.waits and self.queue and self.window.room:
            qos = self.queue[0][1]
            numbers = [number for number, _ in next(groupby(islice(self.queue, self.window.room), itemgetter(1)))[1]]
            taken = publication(numbers, qos)
            packet_ids = self.window.insert(taken, 0, qos, 0.0)
            self._published(packet_ids)
            pieces += taken.part(0, len(packet_ids)).numbered(V5, qos, False, packet_ids)
            for _ in packet_ids:
                self.queue.popleft()
        return b"".join(pieces)

    def receive(self, packet: Acknowledgement | Acknowledgements) -> bytes:
        answer = b""
        for effect, packet_ids, _ in self.window.answered(packet, 0.0):
            if effect in (Effect.TAKEN, Effect.COMPLETED):
                self.unanswered.difference_update(packet_ids)
            elif effect in (Effect.RELEASED, Effect.PUBREL):
                answer += encode_run(PacketType.PUBREL, packet_ids)
            elif effect is Effect.PUBREL_NOT_FOUND:
                for packet_id in packet_ids:
                    answer += encode(Pubrel(packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND), V5)
        return answer


class Receiver:
    def __init__(self) -> None:
        self.receiving = Receiving()
        #: Payloads, each time that they were handed over.
        self.got: list[bytes] = []
        #: By packet id, of what was handed over last: its place in `got`.
        self.last: dict[int, int] = {}
        #: What is not accepted, and what is, by its place in `got`.
        self.owed: list[tuple[int, Callable[[], object]]] = []
        self.accepted: set[int] = set()

    def receive(self, packet: Publish | PublishBatch | Acknowledgement | Acknowledgements) -> bytes:
        if isinstance(packet, Publish | PublishBatch):
            for handover in self.receiving.publish(packet):
                assert handover.accept is not None
                for number, message in enumerate(handover.publication.messages):
                    self.last[handover.publication.packet_ids[number]] = place = len(self.got)
                    self.got.append(message.payload)
                    self.owed.append((place, partial(handover.accept, number)))
            return b""
        answer = b""
        for effect, packet_ids, _ in self.receiving.released(packet):
            if effect is ReceiptEffect.PUBCOMP:
                answer += encode_run(PacketType.PUBCOMP, packet_ids)
            else:
                for packet_id in packet_ids:
                    answer += encode(Pubcomp(packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND), V5)
        return answer

    def accept(self, index: int) -> None:
        place, accept = self.owed.pop(index)
        self.accepted.add(place)
        accept()

    def flush(self) -> bytes:
        answer = b""
        for kind, packet_ids in self.receiving.leaving():
            assert self.accepted.issuperset(map(self.last.__getitem__, packet_ids))
            answer += encode_run(kind, packet_ids)
        return answer


class Halves(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sender, self.receiver = Sender(), Receiver()
        self.qos: list[int] = []
        self.connect(3)

    def connect(self, maximum: int) -> None:
        self.there, self.back = Line(server=True), Line(server=False)
        self.receiver.receiving.attach(maximum)
        self.sender.attach(maximum)
        self.there.waiting = self.sender.pump()

    @rule(qos=st.sampled_from([1, 2]), count=st.integers(1, 4))
    def publish(self, qos: int, count: int) -> None:
        for _ in range(count):
            self.sender.queue.append((len(self.qos), qos))
            self.qos.append(qos)
        self.there.waiting += self.sender.pump()

    @rule(size=st.integers(1, 60))
    def deliver_there(self, size: int) -> None:
        for packet in self.there.deliver(size):
            self.back.waiting += self.receiver.receive(packet)

    @rule(size=st.integers(1, 20))
    def deliver_back(self, size: int) -> None:
        for packet in self.back.deliver(size):
            assert isinstance(packet, Acknowledgement | Acknowledgements)
            self.there.waiting += self.sender.receive(packet)
        self.there.waiting += self.sender.pump()

    @precondition(lambda self: self.receiver.owed)
    @rule(data=st.data(), leaves=st.booleans())
    def accept(self, data: st.DataObject, leaves: bool) -> None:
        self.receiver.accept(data.draw(st.integers(0, len(self.receiver.owed) - 1)))
        if leaves:
            self.back.waiting += self.receiver.flush()

    @rule(maximum=st.integers(1, 5), forbids=st.booleans(), data=st.data())
    def cut(self, maximum: int, forbids: bool, data: st.DataObject) -> None:
        """What is on its way is lost."""
        if forbids and self.qos:
            self.sender.forbidden.add(b"%06d" % data.draw(st.integers(0, len(self.qos) - 1)))
        self.receiver.receiving.detach()
        self.connect(maximum)

    @rule()
    def settle(self) -> None:
        is_settled = False
        while not is_settled:
            self.deliver_there(1000)
            while self.receiver.owed:
                self.receiver.accept(0)
            self.back.waiting += self.receiver.flush()
            self.deliver_back(1000)
            is_settled = not (self.there.waiting or self.back.waiting or self.receiver.owed)
        assert not self.sender.queue
        assert not self.sender.unanswered
        assert len(self.sender.window) == 0
        assert {self.receiver.receiving.state(packet_id) for packet_id in PACKET_IDS} == {ReceiptState.NEW}
        assert set(self.receiver.got) | self.sender.withdrawn == {b"%06d" % number for number in range(len(self.qos))}

    @invariant()
    def first_come_in_order_and_qos_2_once(self) -> None:
        first = list(dict.fromkeys(self.receiver.got))
        assert first == sorted(first)
        twice = [payload for payload in self.receiver.got if self.receiver.got.count(payload) > 1]
        assert all(self.qos[int(payload)] == 1 for payload in twice)

    def teardown(self) -> None:
        self.settle()


TestHalves = Halves.TestCase
TestHalves.settings = hypothesis_settings(stateful_step_count=60, max_examples=200)
