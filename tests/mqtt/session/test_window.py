from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.conformance import raw
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.message import LARGE_PAYLOAD, Message
from trunkline.mqtt.packets import Acknowledgement, Acknowledgements, Puback, Pubcomp, Pubrec
from trunkline.mqtt.publication import Publication, PublishBatch
from trunkline.mqtt.session.states import Effect, State
from trunkline.mqtt.session.window import MAX_PACKET_ID, Entry, Inflight, deliveries
from trunkline.mqtt.versions import Version


def message(payload: bytes = b"payload") -> Message:
    return Message("t", payload, 2, guid=7, publisher="somebody")


def insert(
    inflight: Inflight[Any], publication: Publication, qos: int, now: float = 0.0, target: object = "target"
) -> int:
    """The packet id; 0 where there is none."""
    packet_ids = inflight.insert(publication, target, qos, now)
    return packet_ids.start if packet_ids else 0


def sent(inflight: Inflight[str], *qos: int) -> list[int]:
    return [insert(inflight, message(), q) for q in qos]


def answer(inflight: Inflight[Any], packet: Acknowledgement, now: float = 0.0) -> Message | None:
    """The message that changed its state."""
    ((_, packet_ids, messages),) = inflight.answered(packet, now)
    assert packet_ids == (packet.packet_id,)
    for entry, (packet_id,) in messages:
        return entry.message(packet_id)
    return None


def puback(inflight: Inflight[Any], packet_id: int) -> Message | None:
    return answer(inflight, Puback(packet_id))


def refuse(inflight: Inflight[Any], packet_id: int) -> Message | None:
    return answer(inflight, Pubrec(packet_id, 0x87))


def pubcomp(inflight: Inflight[Any], packet_id: int) -> Message | None:
    return answer(inflight, Pubcomp(packet_id))


def pubrec(inflight: Inflight[Any], packet_id: int, now: float = 0.0) -> Message | None:
    return answer(inflight, Pubrec(packet_id), now)


def row(
    inflight: Inflight[Any], kind: type[Acknowledgement], *packet_ids: int
) -> list[tuple[Effect, list[int], list[int]]]:
    """Acknowledgements in a row: each effect with its packet ids, and how many messages are still together."""
    return [
        (effect, list(ids), [each.count for each, _ in deliveries(messages)])
        for effect, ids, messages in inflight.answered(Acknowledgements(kind, packet_ids), 0.0)
    ]


def ids(entries: list[tuple[Effect, int, Entry[str]]]) -> list[int]:
    return [packet_id for _, packet_id, _ in entries]


def again(inflight: Inflight[str], now: float) -> list[tuple[Effect, int, Entry[str]]]:
    return list(iter(lambda: inflight.next_again(now), None))


def overdue(inflight: Inflight[str], now: float, interval: float) -> list[tuple[Effect, int, Entry[str]]]:
    inflight.repeat(now, interval)
    return again(inflight, now)


def batch(count: int, payload: bytes = b"x") -> PublishBatch:
    packets = [raw.publish("t", payload, qos=1, packet_id=n, version=4) for n in range(1, count + 1)]
    size = len(packets[0])
    return PublishBatch(["t"], 0x32, Version.V311, b"".join(packets), range(0, size * count, size), range(1, count + 1))


def test_looking_changes_nothing() -> None:
    inflight = Inflight[str](10)
    packet_ids = inflight.insert(batch(3), "target", 1, 0.0)
    assert [entry[0] for entry in inflight.export()[1]] == list(packet_ids)
    # as it was sent: the messages are still together
    assert row(inflight, Puback, *packet_ids) == [(Effect.TAKEN, [1, 2, 3], [3])]


def test_a_publication_is_sent_as_far_as_there_is_room_and_packet_ids_in_a_row() -> None:
    inflight = Inflight[str](4)
    assert inflight.insert(batch(3), "target", 1, 0.0) == range(1, 4)
    assert inflight.insert(batch(3), "target", 1, 0.0) == range(4, 5)
    assert not inflight.insert(batch(3), "target", 1, 0.0)
    inflight = Inflight[str](10)
    inflight.restore(MAX_PACKET_ID - 2, [(1, 1, message(), ""), (4, 1, message(), "")], 0.0)
    assert inflight.insert(batch(3), "target", 1, 0.0) == range(MAX_PACKET_ID - 1, MAX_PACKET_ID + 1)
    assert inflight.insert(batch(3), "target", 1, 0.0) == range(2, 4)


def test_messages_of_a_publication_are_acknowledged_together_or_alone() -> None:
    inflight = Inflight[str](10)
    inflight.insert(batch(5), "target", 2, 0.0)
    assert pubrec(inflight, 2) is not None
    assert row(inflight, Pubrec, 3, 4, 1) == [(Effect.RELEASED, [3, 4, 1], [1, 1, 1])]
    assert [packet_id for packet_id, *_ in inflight.export()[1]] == [5, 2, 3, 4, 1]
    assert row(inflight, Pubcomp, 2, 3, 4) == [(Effect.COMPLETED, [2, 3, 4], [1, 2])]
    assert [(packet_id, state) for packet_id, state, *_ in inflight.export()[1]] == [(5, 2), (1, 3)]


def test_of_acknowledgements_in_a_row_each_counts_by_itself_where_they_differ() -> None:
    inflight = Inflight[str](10)
    inflight.insert(batch(4), "target", 2, 0.0)
    pubrec(inflight, 2)
    assert row(inflight, Pubrec, 1, 2, 9, 3, 3) == [
        (Effect.RELEASED, [1], [1]),
        (Effect.PUBREL, [2], []),
        (Effect.PUBREL_NOT_FOUND, [9], []),
        (Effect.RELEASED, [3], [1]),
        (Effect.PUBREL, [3], []),
    ]
    assert row(inflight, Pubcomp, 1, 1, 9, 3) == [
        (Effect.COMPLETED, [1], [1]),
        (Effect.COMPLETED, [3], [1]),
    ]
    assert row(inflight, Pubcomp, 1, 9) == [(Effect.NOTHING, [1, 9], [])]
    assert row(inflight, Pubrec, 1, 9) == [(Effect.PUBREL_NOT_FOUND, [1, 9], [])]


def test_what_came_before_an_acknowledgement_of_another_kind_counts() -> None:
    inflight = Inflight[str](10)
    inflight.insert(batch(2), "target", 1, 0.0)
    sent(inflight, 2)
    steps = iter(inflight.answered(Acknowledgements(Puback, (1, 3, 2)), 0.0))
    assert next(steps)[:2] == (Effect.TAKEN, (1,))
    with pytest.raises(ProtocolError, match="PUBACK for packet identifier 3, which waits for PUBREC"):
        next(steps)
    assert [packet_id for packet_id, *_ in inflight.export()[1]] == [2, 3]


def test_what_may_not_be_sent_again_ends_but_for_what_the_receiver_may_have() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 2)
    inflight.resume(10)
    assert [inflight.withdraw(packet_id, 5.0) for packet_id in (1, 2)] == [Effect.NOTHING, Effect.PUBREL]
    assert [inflight.state(packet_id) for packet_id in (1, 2)] == [State.CLOSED, State.WAIT_PUBCOMP]
    assert again(inflight, 5.0) == []
    assert pubcomp(inflight, 2) is not None


def test_packet_ids_count_up_from_one() -> None:
    assert sent(Inflight(10), 1, 2, 1) == [1, 2, 3]


def test_an_acknowledged_packet_id_is_not_given_again_at_once() -> None:
    inflight = Inflight[str](10)
    assert sent(inflight, 1) == [1]
    puback(inflight, 1)
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
    puback(inflight, 4711)
    assert sent(inflight, 1, 1) == [4711, 0]


def test_a_full_window_gives_no_packet_id() -> None:
    inflight = Inflight[str](2)
    assert sent(inflight, 1, 2, 1) == [1, 2, 0]
    assert (len(inflight), inflight.room) == (2, 0)
    puback(inflight, 1)
    assert inflight.room == 1


def test_puback_ends_qos1() -> None:
    inflight = Inflight[str](2)
    (packet_id,) = sent(inflight, 1)
    ended = puback(inflight, packet_id)
    assert ended is not None
    assert ended.payload == b"payload"
    assert len(inflight) == 0


def test_pubrec_and_pubcomp_end_qos2() -> None:
    inflight = Inflight[str](2)
    (packet_id,) = sent(inflight, 2)
    taken = pubrec(inflight, packet_id, 1.0)
    assert taken is not None
    assert taken.payload == b"payload"
    assert (len(inflight), inflight.state(packet_id)) == (1, State.WAIT_PUBCOMP)
    ended = pubcomp(inflight, packet_id)
    assert ended is not None
    assert (ended.guid, len(inflight), inflight.state(packet_id)) == (7, 0, State.CLOSED)


def test_a_refusing_pubrec_ends_qos2() -> None:
    inflight = Inflight[str](2)
    (packet_id,) = sent(inflight, 2)
    assert refuse(inflight, packet_id)
    assert len(inflight) == 0


def test_unknown_packet_ids_are_told() -> None:
    inflight = Inflight[str](2)
    sent(inflight, 1)
    assert puback(inflight, 9) is None
    assert pubrec(inflight, 9, 0.0) is None
    assert refuse(inflight, 9) is None
    assert pubcomp(inflight, 9) is None
    assert len(inflight) == 1


def test_acknowledgements_of_another_kind_change_nothing() -> None:
    inflight = Inflight[str](3)
    qos1, qos2, released = sent(inflight, 1, 2, 2)
    pubrec(inflight, released, 0.0)
    before = inflight.export()
    for wrong in (
        lambda: puback(inflight, qos2),
        lambda: puback(inflight, released),
        lambda: pubrec(inflight, qos1, 0.0),
        lambda: refuse(inflight, qos1),
        lambda: refuse(inflight, released),
        lambda: pubcomp(inflight, qos1),
        lambda: pubcomp(inflight, qos2),
    ):
        with pytest.raises(ProtocolError, match="which waits for PUB"):
            wrong()
    assert inflight.export() == before


@pytest.mark.parametrize(("size", "kept"), [(LARGE_PAYLOAD, 0), (LARGE_PAYLOAD - 1, LARGE_PAYLOAD - 1)])
def test_a_large_payload_is_let_go_at_pubrec(size: int, kept: int) -> None:
    inflight = Inflight[str](1)
    packet_id = insert(inflight, message(bytes(size)), 2)
    taken = pubrec(inflight, packet_id)
    assert taken is not None
    assert len(taken.payload) == size
    ended = pubcomp(inflight, packet_id)
    assert ended is not None
    assert len(ended.payload) == kept
    assert (ended.topic, ended.guid, ended.publisher) == ("t", 7, "somebody")


def test_a_large_payload_is_kept_for_those_who_want_to_see_it_once_more() -> None:
    inflight = Inflight[str](1)
    packet_id = insert(inflight, message(bytes(LARGE_PAYLOAD)), 2)
    inflight.release([packet_id], 0.0, keeps_payload=True)
    ended = pubcomp(inflight, packet_id)
    assert ended is not None
    assert ended.sizes == (LARGE_PAYLOAD,)


def test_redelivery_is_in_the_order_of_sending_after_pubrels_in_the_order_of_pubrecs() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 2, 1, 2, 2, 1, 2)
    pubrec(inflight, 4, 0.0)
    pubrec(inflight, 1, 0.0)
    puback(inflight, 2)
    inflight.resume(10)
    repeated = again(inflight, 5.0)
    assert ids(repeated) == [4, 1, 3, 5, 6]
    assert [effect for effect, _, _ in repeated] == [Effect.PUBREL] * 2 + [Effect.PUBLISH] * 3
    assert [inflight.state(packet_id) for packet_id in (3, 5)] == [State.WAIT_PUBREC, State.WAIT_PUBACK]
    assert again(inflight, 5.0) == []


def test_redelivery_into_a_smaller_window_goes_on_with_every_acknowledgement() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1, 2, 1, 2)
    inflight.resume(2)
    assert ids(again(inflight, 0.0)) == [1, 2]
    assert inflight.room == 0
    assert sent(inflight, 1) == [0]
    puback(inflight, 2)
    assert ids(again(inflight, 0.0)) == [3]
    pubrec(inflight, 3, 0.0)
    assert ids(again(inflight, 0.0)) == []  # a PUBREC makes no room
    pubcomp(inflight, 3)
    assert ids(again(inflight, 0.0)) == [4]
    puback(inflight, 1)
    assert ids(again(inflight, 0.0)) == [5]
    puback(inflight, 4)
    assert sent(inflight, 1) == [6]


def test_pubrels_are_sent_again_even_beyond_a_smaller_window() -> None:
    inflight = Inflight[str](10)
    for packet_id in sent(inflight, 2, 2, 2):
        pubrec(inflight, packet_id, 0.0)
    sent(inflight, 1)
    inflight.resume(2)
    assert ids(again(inflight, 0.0)) == [1, 2, 3]
    pubcomp(inflight, 1)
    assert ids(again(inflight, 0.0)) == []
    pubcomp(inflight, 2)
    assert ids(again(inflight, 0.0)) == [4]


def test_what_is_acknowledged_before_it_was_sent_again_is_not_sent_again() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1, 2, 1)
    inflight.resume(1)
    assert ids(again(inflight, 0.0)) == [1]
    puback(inflight, 2)
    pubrec(inflight, 3, 0.0)
    assert ids(again(inflight, 0.0)) == []
    puback(inflight, 1)
    pubcomp(inflight, 3)
    assert ids(again(inflight, 0.0)) == [4]


def test_a_pubrec_before_the_redelivery_leaves_only_the_pubrel() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 2, 2)
    inflight.resume(2)
    assert ids(again(inflight, 0.0)) == [1, 2]
    pubrec(inflight, 3, 0.0)
    puback(inflight, 1)
    assert ids(again(inflight, 0.0)) == []


def test_what_is_forgotten_is_neither_open_nor_sent_again() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1, 1)
    inflight.end([1])
    inflight.resume(1)
    inflight.end([2])
    assert ids(again(inflight, 0.0)) == [3]
    assert puback(inflight, 1) is None


def test_a_session_that_is_interrupted_again_begins_again() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1, 1)
    inflight.resume(1)
    again(inflight, 0.0)
    inflight.resume(10)
    assert ids(again(inflight, 0.0)) == [1, 2, 3]


def test_retries_are_due_after_the_interval() -> None:
    inflight = Inflight[str](10)
    insert(inflight, message(), 1)
    insert(inflight, message(), 2, 5.0)
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
    pubrec(inflight, 1, 8.0)
    assert ids(overdue(inflight, 10.0, 10.0)) == []
    ((effect, packet_id, _),) = overdue(inflight, 18.0, 10.0)
    assert (effect, packet_id) == (Effect.PUBREL, 1)


def test_retries_leave_out_what_awaits_its_redelivery() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 1, 1)
    inflight.resume(1)
    again(inflight, 0.0)
    assert ids(overdue(inflight, 100.0, 10.0)) == [1]


def test_an_export_restores_to_the_same_window() -> None:
    inflight = Inflight[str](10)
    sent(inflight, 2, 1, 2)
    pubrec(inflight, 1, 0.0)
    copy = Inflight[str](10)
    copy.restore(*inflight.export(), now=3.0)
    assert copy.export() == inflight.export()
    assert [(packet_id, State(state)) for packet_id, state, *_ in copy.export()[1]] == [
        (2, State.WAIT_PUBACK),
        (3, State.WAIT_PUBREC),
        (1, State.WAIT_PUBCOMP),
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
        self.window = Inflight[Any](4)
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
        packet_id = insert(self.window, message(), qos, target=qos)
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
        handle = {"puback": puback, "pubrec": pubrec, "refuse": refuse, "pubcomp": pubcomp}[kind]
        found = self.find(packet_id)
        wanted = {"puback": State.WAIT_PUBACK, "pubcomp": State.WAIT_PUBCOMP}.get(kind, State.WAIT_PUBREC)
        if found is not None and found.state is State.WAIT_PUBCOMP and kind == "pubrec":  # repeated
            assert handle(self.window, packet_id) is None
            return
        if found is not None and found.state is not wanted:
            with pytest.raises(ProtocolError):
                handle(self.window, packet_id)
            return
        result = handle(self.window, packet_id)
        assert (result is None) == (found is None)
        if found is not None:
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
        assert ids(again(self.window, 1.0)) == expected

    @precondition(lambda self: all(o.sent for o in self.everything()))
    @rule()
    def move(self) -> None:
        moved = Inflight[Any](self.limit)
        moved.restore(*self.window.export(), now=0.0)
        self.window = moved

    @invariant()
    def same(self) -> None:
        assert len(self.window) == len(self.everything())
        assert self.window.room == max(0, self.limit - len(self.everything()))
        listed = [(packet_id, State(state)) for packet_id, state, *_ in self.window.export()[1]]
        assert [i for i, state in listed if state is State.WAIT_PUBCOMP] == [o.packet_id for o in self.pubrels]
        assert [i for i, state in listed if state is not State.WAIT_PUBCOMP] == [o.packet_id for o in self.publishes]


TestWindowModel = WindowModel.TestCase
TestWindowModel.settings = settings(stateful_step_count=50)


def heavy(size: int = 100_000) -> Message:
    return Message("t", bytes(size), 2)


def test_the_window_is_bounded_in_bytes_but_for_the_last_that_is_let_in() -> None:
    inflight = Inflight[str](100, max_bytes=250_000)
    assert [insert(inflight, heavy(), qos) for qos in (1, 2, 1, 2)] == [1, 2, 3, 0]
    assert (inflight.byte_size, inflight.room) == (3 * heavy().weight, 0)
    assert insert(inflight, message(), 1) == 0
    pubrec(inflight, 2, 0.0)  # the client has it: only PUBREL is left to send
    assert inflight.byte_size == 2 * heavy().weight
    assert insert(inflight, heavy(), 1) == 4
    inflight.end([1, 3])
    inflight.end([4])
    assert (inflight.byte_size, inflight.room) == (0, 99)
    assert insert(inflight, heavy(10**6), 1)  # one is let in, however heavy


def test_all_that_makes_a_message_heavy_counts_and_what_is_light_pays_nothing() -> None:
    inflight = Inflight[str](100, max_bytes=1)
    for light in (message(), Message("t", b"", properties={"content_type": "text"})):
        assert insert(inflight, light, 1)
    assert inflight.byte_size == 0
    assert insert(inflight, Message("t", b"", properties={"content_type": "x" * 5000}), 2)
    assert inflight.room == 0
    pubrec(inflight, 3, 0.0)
    assert inflight.room == 97
    assert insert(inflight, Message("t" * 5000, b""), 1)
    assert inflight.room == 0


def test_heavy_messages_in_a_row_are_weighed_each_by_itself() -> None:
    inflight = Inflight[str](100, max_bytes=8_000)
    both = batch(2, bytes(5000))
    assert inflight.insert(both, "target", 1, 0.0) == range(1, 2)
    assert inflight.byte_size == both.messages[0].weight


def test_bytes_go_with_the_window_and_bound_no_redelivery() -> None:
    inflight = Inflight[str](100, max_bytes=250_000)
    for _ in range(3):
        insert(inflight, heavy(), 1)
    copy = Inflight[str](100, max_bytes=250_000)
    copy.restore(*inflight.export(), now=0.0)
    assert copy.byte_size == inflight.byte_size
    copy.resume(50)
    assert ids(again(copy, 0.0)) == [1, 2, 3]
    assert copy.room == 0
    puback(copy, 2)
    assert copy.room == 48


def test_the_oldest_are_taken_together() -> None:
    inflight: Inflight[str] = Inflight(100)
    packet_ids = sent(inflight, 1, 2, 2, 1)
    pubrec(inflight, packet_ids[1])
    assert [state for _, _, state in inflight.remove_oldest(3)] == [
        State.WAIT_PUBACK,
        State.WAIT_PUBREC,
        State.WAIT_PUBACK,
    ]
    assert [state for _, _, state in inflight.remove_oldest(3)] == [State.WAIT_PUBCOMP]
    assert inflight.remove_oldest(3) == []


def test_packet_ids_above_the_highest_are_left_to_others() -> None:
    inflight = Inflight[str](10, max_id=4)
    assert [insert(inflight, message(), 1) for _ in range(3)] == [1, 2, 3]
    inflight.end([1])
    burst = PublishBatch(["t"], 0x32, Version.V311, 3 * b"2\5\0\1t\0\1", range(0, 21, 7), [1, 1, 1])
    assert inflight.insert(burst, "burst", 1, 0.0) == range(4, 5)
    assert inflight.insert(burst, "burst", 1, 0.0) == range(1, 2)


def test_targets_of_messages_that_were_sent_together() -> None:
    inflight = Inflight[str](10)
    burst = PublishBatch(["t"], 0x32, Version.V311, 3 * b"2\5\0\1t\0\1", range(0, 21, 7), [1, 1, 1])
    insert(inflight, burst, 1, target="burst")
    insert(inflight, message(), 1, target="single")
    assert inflight.all_targets == ["burst", "single"]
    assert inflight.entry_again is None
    ended = [(entry.target, entry.numbers(together)) for entry, together in inflight.end([2, 3, 4])]
    assert ended == [("burst", [1, 2]), ("single", [0])]
    inflight.end([1])
    insert(inflight, message(), 1, target="single")
    inflight.resume(10)
    assert inflight.entry_again is not None
    assert inflight.entry_again.target == "single"
