from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.conformance import raw
from trunkline.mqtt.batch import PublishBatch
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.inflight import MAX_PACKET_ID, RELEASED_SIZE, Entry, Inflight, Miss, State
from trunkline.mqtt.message import Message
from trunkline.mqtt.versions import Version
from trunkline.mqtt.weight import weight


def message(payload: bytes = b"payload") -> Message:
    return Message("t", payload, 2, guid=7, publisher="somebody")


def sent(inflight: Inflight[str], *qos: int) -> list[int]:
    return [inflight.insert(message(), "target", q, 0.0) for q in qos]


def ids(entries: list[tuple[int, Entry[str]]]) -> list[int]:
    return [packet_id for packet_id, _ in entries]


def again(inflight: Inflight[str], now: float) -> list[tuple[int, Entry[str]]]:
    return list(iter(lambda: inflight.next_again(now), None))


def overdue(inflight: Inflight[str], now: float, interval: float) -> list[tuple[int, Entry[str]]]:
    inflight.repeat(now, interval)
    return again(inflight, now)


def burst(count: int) -> PublishBatch:
    packets = [raw.publish("t", b"x", qos=1, packet_id=n, version=4) for n in range(1, count + 1)]
    return PublishBatch(
        ["t"], 1, Version.V311, b"".join(packets), range(0, len(packets[0]) * count, len(packets[0])), [1, 2, 3]
    )


def test_who_only_looks_changes_nothing() -> None:
    inflight = Inflight[str](10)
    packet_ids = inflight.insert_burst(burst(3), "target", 1, 0.0)
    assert [packet_id for packet_id, _ in inflight.items()] == list(packet_ids)
    assert [entry[0] for entry in inflight.export()[1]] == list(packet_ids)
    still = inflight.waiting(packet_ids, State.WAIT_PUBACK)
    assert [type(each) for each in still] == [PublishBatch]  # as it was sent: the messages are still together


def test_packet_ids_count_up_from_one() -> None:
    assert sent(Inflight(10), 1, 2, 1) == [1, 2, 3]


def test_an_acknowledged_packet_id_is_not_given_again_at_once() -> None:
    inflight = Inflight[str](10)
    assert sent(inflight, 1) == [1]
    inflight.puback(1)
    assert sent(inflight, 1) == [2]


def test_packet_ids_begin_again_at_one_and_skip_what_is_open() -> None:
    inflight = Inflight[str](10)
    inflight.restore(MAX_PACKET_ID - 1, [(1, 1, message(), ""), (2, 2, message(), "")], 0.0)
    assert sent(inflight, 1, 1) == [MAX_PACKET_ID, 3]


def test_a_packet_id_is_skipped_at_the_end_too() -> None:
    inflight = Inflight[str](10)
    inflight.restore(MAX_PACKET_ID - 1, [(MAX_PACKET_ID, 1, message(), "")], 0.0)
    assert sent(inflight, 1) == [1]


def test_every_packet_id_can_be_open() -> None:
    inflight = Inflight[str](MAX_PACKET_ID)
    assert sent(inflight, *[1] * MAX_PACKET_ID) == list(range(1, MAX_PACKET_ID + 1))
    assert sent(inflight, 1) == [0]
    inflight.puback(4711)
    assert sent(inflight, 1, 1) == [4711, 0]


def test_a_full_window_gives_no_packet_id() -> None:
    inflight = Inflight[str](2)
    assert sent(inflight, 1, 2, 1) == [1, 2, 0]
    assert (len(inflight), inflight.room) == (2, 0)
    inflight.puback(1)
    assert inflight.room == 1


def test_puback_ends_qos1() -> None:
    inflight = Inflight[str](2)
    (packet_id,) = sent(inflight, 1)
    entry = inflight.puback(packet_id)
    assert isinstance(entry, Entry)
    assert (entry.message.payload, entry.target, entry.qos) == (b"payload", "target", 1)
    assert len(inflight) == 0


def test_pubrec_and_pubcomp_end_qos2() -> None:
    inflight = Inflight[str](2)
    (packet_id,) = sent(inflight, 2)
    entry = inflight.pubrec(packet_id, 1.0)
    assert isinstance(entry, Entry)
    assert (entry.message.payload, entry.qos, entry.state) == (b"payload", 2, State.WAIT_PUBREC)
    assert len(inflight) == 1
    entry = inflight.pubcomp(packet_id)
    assert isinstance(entry, Entry)
    assert (entry.message.guid, entry.target, entry.qos, entry.state) == (7, "target", 2, State.WAIT_PUBCOMP)
    assert len(inflight) == 0


def test_a_refusing_pubrec_ends_qos2() -> None:
    inflight = Inflight[str](2)
    (packet_id,) = sent(inflight, 2)
    assert isinstance(inflight.refuse(packet_id), Entry)
    assert len(inflight) == 0


def test_unknown_packet_ids_are_told() -> None:
    inflight = Inflight[str](2)
    sent(inflight, 1)
    assert inflight.puback(9) is Miss.NOT_FOUND
    assert inflight.pubrec(9, 0.0) is Miss.NOT_FOUND
    assert inflight.refuse(9) is Miss.NOT_FOUND
    assert inflight.pubcomp(9) is Miss.NOT_FOUND
    assert len(inflight) == 1


def test_acknowledgements_of_another_kind_change_nothing() -> None:
    inflight = Inflight[str](3)
    qos1, qos2, released = sent(inflight, 1, 2, 2)
    inflight.pubrec(released, 0.0)
    before = inflight.export()
    for wrong in (
        lambda: inflight.puback(qos2),
        lambda: inflight.puback(released),
        lambda: inflight.pubrec(qos1, 0.0),
        lambda: inflight.refuse(qos1),
        lambda: inflight.refuse(released),
        lambda: inflight.pubcomp(qos1),
        lambda: inflight.pubcomp(qos2),
    ):
        with pytest.raises(ProtocolError, match="which waits for PUB"):
            wrong()
    assert inflight.export() == before


def test_acknowledgements_in_a_row_count_up_to_the_one_of_another_kind() -> None:
    inflight = Inflight[str](5)
    first, qos2, last = sent(inflight, 1, 2, 1)
    assert len(inflight.waiting([first, 99, qos2, last], State.WAIT_PUBACK)) == 1
    with pytest.raises(ProtocolError, match="PUBACK for packet identifier 2, which waits for PUBREC"):
        inflight.pubacks([first, 99, qos2, last])
    with pytest.raises(ProtocolError, match="PUBCOMP for packet identifier 3, which waits for PUBACK"):
        inflight.pubcomps([last])
    assert [packet_id for packet_id, _ in inflight.items()] == [qos2, last]


def test_a_second_pubrec_is_told_apart() -> None:
    inflight = Inflight[str](1)
    (packet_id,) = sent(inflight, 2)
    inflight.pubrec(packet_id, 0.0)
    assert inflight.pubrec(packet_id, 0.0) is Miss.REPEATED
    assert len(inflight) == 1


@pytest.mark.parametrize(("size", "kept"), [(RELEASED_SIZE, 0), (RELEASED_SIZE - 1, RELEASED_SIZE - 1)])
def test_a_large_payload_is_let_go_at_pubrec(size: int, kept: int) -> None:
    inflight = Inflight[str](1)
    packet_id = inflight.insert(message(bytes(size)), "target", 2, 0.0)
    entry = inflight.pubrec(packet_id, 0.0)
    assert isinstance(entry, Entry)
    assert len(entry.message.payload) == size
    entry = inflight.pubcomp(packet_id)
    assert isinstance(entry, Entry)
    assert len(entry.message.payload) == kept
    assert (entry.message.topic, entry.message.guid, entry.message.publisher) == ("t", 7, "somebody")


def test_redelivery_is_in_the_order_of_sending_after_pubrels_in_the_order_of_pubrecs() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 2, 1, 2, 2, 1, 2)
    inflight.pubrec(4, 0.0)
    inflight.pubrec(1, 0.0)
    inflight.puback(2)
    inflight.resume(10)
    repeated = again(inflight, 5.0)
    assert ids(repeated) == [4, 1, 3, 5, 6]
    assert [entry.state for _, entry in repeated] == [State.WAIT_PUBCOMP] * 2 + [
        State.WAIT_PUBREC,
        State.WAIT_PUBACK,
        State.WAIT_PUBREC,
    ]
    assert again(inflight, 5.0) == []


def test_redelivery_into_a_smaller_window_goes_on_with_every_acknowledgement() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1, 2, 1, 2)
    inflight.resume(2)
    assert ids(again(inflight, 0.0)) == [1, 2]
    assert inflight.room == 0
    assert sent(inflight, 1) == [0]
    inflight.puback(2)
    assert ids(again(inflight, 0.0)) == [3]
    inflight.pubrec(3, 0.0)
    assert ids(again(inflight, 0.0)) == []  # a PUBREC makes no room
    inflight.pubcomp(3)
    assert ids(again(inflight, 0.0)) == [4]
    inflight.puback(1)
    assert ids(again(inflight, 0.0)) == [5]
    inflight.puback(4)
    assert sent(inflight, 1) == [6]


def test_pubrels_are_sent_again_even_beyond_a_smaller_window() -> None:
    inflight = Inflight[str](10)
    for packet_id in sent(inflight, 2, 2, 2):
        inflight.pubrec(packet_id, 0.0)
    sent(inflight, 1)
    inflight.resume(2)
    assert ids(again(inflight, 0.0)) == [1, 2, 3]
    inflight.pubcomp(1)
    assert ids(again(inflight, 0.0)) == []
    inflight.pubcomp(2)
    assert ids(again(inflight, 0.0)) == [4]


def test_what_is_acknowledged_before_it_was_sent_again_is_not_sent_again() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1, 2, 1)
    inflight.resume(1)
    assert ids(again(inflight, 0.0)) == [1]
    inflight.puback(2)
    inflight.pubrec(3, 0.0)
    assert ids(again(inflight, 0.0)) == []
    inflight.puback(1)
    inflight.pubcomp(3)
    assert ids(again(inflight, 0.0)) == [4]


def test_a_pubrec_before_the_redelivery_leaves_only_the_pubrel() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 2, 2)
    inflight.resume(2)
    assert ids(again(inflight, 0.0)) == [1, 2]
    inflight.pubrec(3, 0.0)
    inflight.puback(1)
    assert ids(again(inflight, 0.0)) == []


def test_what_is_forgotten_is_neither_open_nor_sent_again() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1, 1)
    inflight.forget(1)
    inflight.forget(9)
    inflight.resume(1)
    inflight.forget(2)
    assert ids(again(inflight, 0.0)) == [3]
    assert inflight.puback(1) is Miss.NOT_FOUND


def test_a_session_that_is_interrupted_again_begins_again() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1, 1)
    inflight.resume(1)
    again(inflight, 0.0)
    inflight.resume(10)
    assert ids(again(inflight, 0.0)) == [1, 2, 3]


def test_retries_are_due_after_the_interval() -> None:
    inflight = Inflight[str](10)
    inflight.insert(message(), "target", 1, 0.0)
    inflight.insert(message(), "target", 2, 5.0)
    assert ids(overdue(inflight, 9.9, 10.0)) == []
    assert ids(overdue(inflight, 10.0, 10.0)) == [1]
    assert ids(overdue(inflight, 15.0, 10.0)) == [2]
    assert ids(overdue(inflight, 25.0, 10.0)) == [1, 2]


def test_a_redelivery_begins_the_interval_again() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1)
    inflight.resume(10)
    again(inflight, 50.0)
    assert ids(overdue(inflight, 59.0, 10.0)) == []
    assert ids(overdue(inflight, 60.0, 10.0)) == [1]


def test_a_pubrec_begins_the_interval_of_its_pubrel() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 2)
    inflight.pubrec(1, 8.0)
    assert ids(overdue(inflight, 10.0, 10.0)) == []
    ((packet_id, entry),) = overdue(inflight, 18.0, 10.0)
    assert (packet_id, entry.state) == (1, State.WAIT_PUBCOMP)


def test_retries_leave_out_what_awaits_its_redelivery() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1)
    inflight.resume(1)
    again(inflight, 0.0)
    assert ids(overdue(inflight, 100.0, 10.0)) == [1]


def test_an_export_restores_to_the_same_window() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 2, 1, 2)
    inflight.pubrec(1, 0.0)
    copy = Inflight[str](10)
    copy.restore(*inflight.export(), now=3.0)
    assert copy.export() == inflight.export()
    assert [(i, e.state, e.sent_at) for i, e in copy.items()] == [
        (2, State.WAIT_PUBACK, 3.0),
        (3, State.WAIT_PUBREC, 3.0),
        (1, State.WAIT_PUBCOMP, 3.0),
    ]
    assert sent(copy, 1) == [4]


@dataclass(eq=False)
class Open:
    packet_id: int
    state: State
    #: On this connection.
    sent: bool = True


class WindowModel(RuleBasedStateMachine):
    """A window against plain lists: PUBLISHes in the order of sending, PUBRELs in the order of PUBRECs."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 4
        self.window = Inflight[int](4)
        self.publishes: list[Open] = []
        self.pubrels: list[Open] = []
        self.last_id = MAX_PACKET_ID - 5
        self.window.restore(self.last_id, [], 0.0)

    def everything(self) -> list[Open]:
        return self.pubrels + self.publishes

    def find(self, packet_id: int) -> Open | None:
        return next((o for o in self.everything() if o.packet_id == packet_id), None)

    def forget(self, gone: Open) -> None:
        (self.pubrels if gone in self.pubrels else self.publishes).remove(gone)

    @rule(qos=st.integers(1, 2))
    def insert(self, qos: int) -> None:
        packet_id = self.window.insert(message(), qos, qos, 0.0)
        if len(self.everything()) >= self.limit:
            assert packet_id == 0
            return
        expected = self.last_id
        while expected == self.last_id or self.find(expected):
            expected = expected % MAX_PACKET_ID + 1
        assert packet_id == expected
        self.last_id = expected
        self.publishes.append(Open(packet_id, State.WAIT_PUBACK if qos == 1 else State.WAIT_PUBREC))

    @rule(data=st.data(), kind=st.sampled_from(["puback", "pubrec", "refuse", "pubcomp"]))
    def acknowledge(self, data: st.DataObject, kind: str) -> None:
        known = [o.packet_id for o in self.everything()]
        packet_id = data.draw(st.sampled_from([*known, 30_000]))
        now = {"now": 0.0} if kind == "pubrec" else {}
        found = self.find(packet_id)
        wanted = {"puback": State.WAIT_PUBACK, "pubcomp": State.WAIT_PUBCOMP}.get(kind, State.WAIT_PUBREC)
        again = found is not None and kind == "pubrec" and found.state is State.WAIT_PUBCOMP
        if found is not None and found.state is not wanted and not again:
            with pytest.raises(ProtocolError):
                getattr(self.window, kind)(packet_id, **now)
            return
        result = getattr(self.window, kind)(packet_id, **now)
        if found is None:
            assert result is Miss.NOT_FOUND
        elif again:
            assert result is Miss.REPEATED
        else:
            assert result.state is wanted
            self.forget(found)
            if kind == "pubrec":
                self.pubrels.append(Open(packet_id, State.WAIT_PUBCOMP))

    @rule(limit=st.integers(1, 8))
    def resume(self, limit: int) -> None:
        self.limit = limit
        self.window.resume(limit)
        for o in self.everything():
            o.sent = False
        self.redeliver()

    @rule()
    def redeliver(self) -> None:
        expected: list[int] = []
        for o in self.everything():
            if o.sent:
                continue
            if o.state is not State.WAIT_PUBCOMP and sum(o.sent for o in self.everything()) >= self.limit:
                break
            o.sent = True
            expected.append(o.packet_id)
        assert [packet_id for packet_id, _ in again(self.window, 1.0)] == expected

    @precondition(lambda self: all(o.sent for o in self.everything()))
    @rule()
    def move(self) -> None:
        moved = Inflight[int](self.limit)
        moved.restore(*self.window.export(), now=0.0)
        self.window = moved

    @invariant()
    def same(self) -> None:
        assert len(self.window) == len(self.everything())
        assert self.window.room == max(0, self.limit - len(self.everything()))
        listed = [(i, e.state) for i, e in self.window.items()]
        assert [i for i, state in listed if state is State.WAIT_PUBCOMP] == [o.packet_id for o in self.pubrels]
        assert [i for i, state in listed if state is not State.WAIT_PUBCOMP] == [o.packet_id for o in self.publishes]


TestWindowModel = WindowModel.TestCase
TestWindowModel.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


def heavy(size: int = 100_000) -> Message:
    return Message("t", bytes(size), 2)


def test_the_window_is_bounded_in_bytes_but_for_the_last_that_is_let_in() -> None:
    inflight = Inflight[str](100, max_bytes=250_000)
    assert [inflight.insert(heavy(), "target", qos, 0.0) for qos in (1, 2, 1, 2)] == [1, 2, 3, 0]
    assert (inflight.byte_size, inflight.room) == (3 * weight(heavy()), 0)
    assert inflight.insert(message(), "target", 1, 0.0) == 0
    inflight.pubrec(2, 0.0)  # the client has it: only PUBREL is left to send
    assert inflight.byte_size == 2 * weight(heavy())
    assert inflight.insert(heavy(), "target", 1, 0.0) == 4
    inflight.pubacks([1, 3])
    inflight.forget(4)
    assert (inflight.byte_size, inflight.room) == (0, 99)
    assert inflight.insert(heavy(10**6), "target", 1, 0.0)  # one is let in, however heavy


def test_all_that_makes_a_message_heavy_counts_and_what_is_light_pays_nothing() -> None:
    inflight = Inflight[str](100, max_bytes=1)
    for light in (message(), Message("t", b"", properties={"content_type": "text"})):
        assert inflight.insert(light, "target", 1, 0.0)
    assert inflight.byte_size == 0
    assert inflight.insert(Message("t", b"", properties={"content_type": "x" * 5000}), "target", 2, 0.0)
    assert inflight.room == 0
    inflight.pubrec(3, 0.0)
    assert inflight.room == 97
    assert inflight.insert(Message("t" * 5000, b""), "target", 1, 0.0)
    assert inflight.room == 0


def test_heavy_messages_in_a_row_are_weighed_each_by_itself() -> None:
    packets = [raw.publish("t", bytes(5000), qos=1, packet_id=n, version=4) for n in (1, 2)]
    both = PublishBatch(
        ["t"], 1, Version.V311, b"".join(packets), range(0, 2 * len(packets[0]), len(packets[0])), [1, 2]
    )
    assert not Inflight[str](100).insert_burst(both, "target", 1, 0.0)


def test_bytes_go_with_the_window_and_bound_no_redelivery() -> None:
    inflight = Inflight[str](100, max_bytes=250_000)
    for _ in range(3):
        inflight.insert(heavy(), "target", 1, 0.0)
    copy = Inflight[str](100, max_bytes=250_000)
    copy.restore(*inflight.export(), now=0.0)
    assert copy.byte_size == inflight.byte_size
    copy.resume(50)
    assert ids(again(copy, 0.0)) == [1, 2, 3]
    assert copy.room == 0
    copy.puback(2)
    assert copy.room == 48
