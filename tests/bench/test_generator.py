"""The clients of the load generator, each at one end of a pair of sockets."""

import socket
from collections.abc import Callable, Iterator

import pytest
from bench import wire
from bench.loop import BrokenRun, Loop, Totals
from bench.parts import Gate
from bench.slots import Slots
from bench.stored import Subscribing
from bench.streaming import LOOKED_AT, AcknowledgedPublisher, Subscriber, SubscriberQos1, SubscriberQos2
from bench.workloads import IN_FLIGHT, WORKLOADS

SIZES = [8, 300, 20_000]  # lengths of one, two and three bytes


class Ends:
    """A client's loop, and the broker's end of its connection."""

    def __init__(self) -> None:
        ours, self.broker = socket.socketpair()
        ours.setblocking(False)
        self.broker.settimeout(5)
        self.sock, self.loop, self.slots = ours, Loop(), Slots(1)
        self.totals = Totals(self.slots.values, self.slots.index(0, Slots.DELIVERED))

    def say(self, data: bytes) -> None:
        self.broker.sendall(data)
        self.loop.turn(1)

    def heard(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self.broker.recv(size - len(data))
        return data

    def silent(self) -> bool:
        self.broker.setblocking(False)
        try:
            return not self.broker.recv(1)
        except BlockingIOError:
            return True
        finally:
            self.broker.settimeout(5)

    def close(self) -> None:
        self.loop.epoll.close()
        self.sock.close()
        self.broker.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def publishes(qos: int, size: int, number: int = 3) -> tuple[list[bytes], int]:
    """Frames, and where their packet id is."""
    frames = wire.publish_frames(["a/b"], wire.payload_of(size), qos, wire.V311, number)
    return frames, wire.header_size(frames[0]) + 2 + 3


@pytest.mark.parametrize("size", SIZES)
def test_packet_ids_are_found_behind_any_length(size: int) -> None:
    frames, at = publishes(1, size)
    assert [frame[at : at + 2] for frame in frames] == [b"\0\1", b"\0\2", b"\0\3"]


def cuts(data: bytes) -> list[tuple[bytes, bytes]]:
    """In two parts, with the cut at each of the first and of the last places."""
    places = [*range(1, min(40, len(data))), *range(max(40, len(data) - 10), len(data))]
    return [(data[:place], data[place:]) for place in places]


@pytest.mark.parametrize("size", SIZES)
def test_qos1_is_acknowledged_wherever_the_stream_is_cut(ends: Ends, size: int) -> None:
    frames, at = publishes(1, size)
    subscriber = SubscriberQos1(ends.loop, ends.sock, len(frames[0]), ends.totals, at)
    data = b"".join(frames)
    for times, (first, second) in enumerate(cuts(data), 1):
        ends.say(first)
        ends.say(second)
        while subscriber.messages < 3 * times:
            ends.loop.turn(1)
        assert ends.heard(12) == b"\x40\2\0\1\x40\2\0\2\x40\2\0\3"
    assert ends.slots.delivered == subscriber.messages
    assert not subscriber.duplicates


@pytest.mark.parametrize("size", SIZES)
def test_qos2_is_answered_wherever_the_stream_is_cut(ends: Ends, size: int) -> None:
    frames, at = publishes(2, size)
    subscriber = SubscriberQos2(ends.loop, ends.sock, len(frames[0]), ends.totals, at)
    # two of a kind, one of another, and a PUBREL with a reason code
    data = frames[0] + frames[1] + b"\x62\2\0\7\x62\2\0\x08" + frames[2] + b"\x62\3\0\x09\0" + b"\x62\2\0\x0a"
    for times, (first, second) in enumerate(cuts(data), 1):
        ends.say(first)
        ends.say(second)
        expected = b"\x50\2\0\1\x50\2\0\2\x70\2\0\7\x70\2\0\x08\x50\2\0\3\x70\2\0\x09\x70\2\0\x0a"
        while subscriber.messages < 3 * times or subscriber.begin < subscriber.end:
            ends.loop.turn(1)
        assert ends.heard(len(expected)) == expected
    assert ends.slots.delivered == subscriber.messages


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Subscriber, b"\x32" + bytes(99)),
        (SubscriberQos1, b"\x30" + bytes(99)),
        (SubscriberQos2, b"\x32" + bytes(99)),
    ],
)
def test_a_subscriber_takes_only_what_was_sent(ends: Ends, make: Callable[..., object], said: bytes) -> None:
    places = [] if make is Subscriber else [7]
    make(ends.loop, ends.sock, 30, ends.totals, *places)
    with pytest.raises(BrokenRun, match="a subscriber got"):
        ends.say(said)


def test_qos0_is_counted_and_one_read_of_some_is_looked_at(ends: Ends) -> None:
    subscriber = Subscriber(ends.loop, ends.sock, 5000, ends.totals)
    frame = b"\x30" + bytes(4999)
    for number in range(LOOKED_AT):
        ends.say(frame[:100])
        ends.say(frame[100:])
        assert subscriber.messages == number + 1
    ends.say(frame[:100])  # looked at
    for _ in range(1, LOOKED_AT):
        ends.say(frame[100:101])
    assert subscriber.messages == LOOKED_AT
    with pytest.raises(BrokenRun, match="a subscriber got"):
        ends.say(frame[100 + LOOKED_AT - 1 :] + b"\x32")


def acknowledged(ends: Ends, qos: int) -> AcknowledgedPublisher:
    frames, _at = publishes(qos, 8, 40)
    publisher = AcknowledgedPublisher(ends.loop, ends.sock, b"".join(frames), len(frames[0]), 4, qos)
    publisher.start()
    assert ends.heard(4 * len(frames[0])) == b"".join(frames[:4])
    assert ends.silent()
    return publisher


def test_a_publisher_is_no_further_ahead_than_its_window(ends: Ends) -> None:
    publisher = acknowledged(ends, 1)
    ends.say(b"\x40\2\0\1\x40\2\0\2")
    assert len(ends.heard(2 * publisher.frame)) == 2 * publisher.frame
    assert ends.silent()
    assert (publisher.messages, publisher.acknowledged) == (6, 2)


@pytest.mark.parametrize(
    ("said", "heard", "acknowledged_now"),
    [
        (b"\x50\2\0\1\x50\2\0\2", b"\x62\2\0\1\x62\2\0\2", 0),
        (b"\x50\2\0\1\x70\2\0\x09\x50\2\0\2\x70\2\0\x0a", b"\x62\2\0\1\x62\2\0\2", 2),
        (b"\x50\3\0\1\0\x50\2\0\2", b"\x62\2\0\1\x62\2\0\2", 0),
        (b"\x70\2\0\1\x70\2\0\2", b"", 2),
    ],
)
def test_qos2_is_released(ends: Ends, said: bytes, heard: bytes, acknowledged_now: int) -> None:
    publisher = acknowledged(ends, 2)
    ends.say(said)
    assert ends.heard(len(heard)) == heard
    assert publisher.acknowledged == acknowledged_now
    assert len(ends.heard(acknowledged_now * publisher.frame)) == acknowledged_now * publisher.frame
    assert ends.silent()


@pytest.mark.parametrize("said", [b"\x50\2\0\1\x40\2\0\1", b"\x50\3\0\1\x80", b"\xe0\2\0\0"])
def test_a_publisher_takes_only_its_answers(ends: Ends, said: bytes) -> None:
    acknowledged(ends, 2)
    with pytest.raises(BrokenRun):
        ends.say(said)


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_subscribing_goes_on_when_all_is_answered(ends: Ends, version: int) -> None:
    properties = b"\0" if version == wire.V5 else b""
    client = Subscribing(ends.loop, ends.sock, 3, 2, version, ends.totals)
    client.start()
    asked = wire.subscribe("come/003/000/t", 0, version, 1) + wire.subscribe("come/003/001/t", 0, version, 2)
    assert ends.heard(len(asked)) == asked
    ends.say(b"".join(wire.packet(0x90, bytes([0, number]) + properties + b"\0") for number in (1, 2)))
    ended = wire.unsubscribe("come/003/000/t", version, 1) + wire.unsubscribe("come/003/001/t", version, 2)
    assert ends.heard(len(ended)) == ended
    answers = b"".join(wire.packet(0xB0, bytes([0, number]) + properties * 2) for number in (1, 2))
    for byte in answers:
        assert ends.silent()
        ends.say(bytes([byte]))
    asked = wire.subscribe("come/003/002/t", 0, version, 1) + wire.subscribe("come/003/003/t", 0, version, 2)
    assert ends.heard(len(asked)) == asked
    assert client.messages == ends.slots.delivered == 4
    with pytest.raises(BrokenRun, match="SUBSCRIBE was answered"):
        ends.say(wire.packet(0x90, b"\0\1" + properties + b"\x80"))


def test_the_gate_shares_what_has_come(ends: Ends) -> None:
    slots = Slots(2)
    gate = Gate(slots, flows=5, window=800)
    pushed = []

    class Publisher:
        def push(self) -> None:
            pushed.append(gate.low())

    gate.publishers.append(Publisher())  # type: ignore[arg-type]
    gate.after_turn()
    slots.values[slots.index(0, Slots.DELIVERED)] = 300
    gate.after_turn()  # an eighth of all windows, 500 bytes, must have come
    slots.values[slots.index(1, Slots.DELIVERED)] = 250
    gate.after_turn()
    assert pushed == [0, 110]


def test_large_messages_have_small_windows() -> None:
    for workload in WORKLOADS.values():
        if workload.sizes:
            large = workload.sized(65536)
            assert large.window * 65536 <= IN_FLIGHT
            assert len(large.frames(0, wire.V5)[0]) > 65536
            ids = len(large.frames(0, wire.V5)) if workload.qos else 0
            assert ids >= 2 * large.window or not workload.qos  # none is used again while it is on its way
    assert WORKLOADS["pair-qos0"].sized(64) == WORKLOADS["pair-qos0"]
