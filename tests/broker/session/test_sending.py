"""What goes to a client: in order, within its window, and nothing lost on the way."""

import gc
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.broker.disk import Disk
from tests.broker.room import Room, room
from tests.broker.session.test_outbound import congest
from tests.conformance import raw
from trunkline.broker.committer import DELAY
from trunkline.broker.metrics import DropReason
from trunkline.broker.session import mail
from trunkline.broker.stored_publications import MESSAGES
from trunkline.hooks import DROP, ClientInfo, Deny, Hooks, Withhold
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.window import Inflight
from trunkline.streams import StreamConfig


async def test_the_window_is_the_smaller_of_both_sides() -> None:
    async with room(session={"max_inflight": 3}) as here:
        wide, narrow = await here.client("wide"), await here.client("narrow", properties=raw.receive_maximum(2))
        for client in (wide, narrow):
            await client.subscribe(("t", 1))
        for number in range(10):
            here.broker.publish("t", b"%d" % number, qos=1)
        await wide.send(raw.PINGREQ)
        packets = [await wide.receive() for _ in range(4)]
        assert [packet.type for packet in packets] == [raw.PUBLISH] * 3 + [raw.PINGRESP[0]]
        assert len({packet.packet_id for packet in packets[:3]}) == 3
        assert [len(here.session(name).session.inflight) for name in ("wide", "narrow")] == [3, 2]
        for number in range(10):
            await narrow.take_publish("t", b"%d" % number, qos=1)


async def test_what_has_expired_is_not_sent_and_what_is_left_is_told(autojump_clock: MockClock) -> None:
    async with room() as here:
        dropped: list[str] = []
        here.node.hooks.add("message.dropped", lambda client, message, word: dropped.append(word))
        client, publisher = await here.stay("a"), await here.client("p")
        await client.subscribe(("t", 1))
        await client.disconnect()
        for seconds in (5, 100):
            await publisher.publish("t", b"%d" % seconds, qos=1, properties=raw.message_expiry(seconds))
        await trio.sleep(9.5)
        client = await here.stay("a")
        packet = await client.take_publish("t", b"100", qos=1)
        assert packet.get(raw.MESSAGE_EXPIRY) == 91
        assert dropped == ["expired"]
        await client.expect_nothing()


async def test_what_is_too_large_counts_as_delivered() -> None:
    async with room(session={"max_inflight": 1}) as here:
        client = await here.client("a", properties=raw.maximum_packet_size(100))
        await client.subscribe(("t", 1))
        here.broker.publish("t", bytes(200), qos=1)
        here.broker.publish("t", b"small", qos=1)
        await client.take_publish("t", b"small", qos=1)
        await client.ping()
        assert here.node.metrics.dropped[DropReason.TOO_LARGE] == 1
        assert len(here.session("a").session.inflight) == 0


async def test_what_has_become_too_large_when_it_is_sent_again_is_released_at_qos_2() -> None:
    """The client may have it, and would take a later message with its packet id for it."""
    async with room() as here:
        client = await here.stay("a")
        await client.subscribe(("t", 2))
        for qos in (1, 2):
            here.broker.publish("t", bytes(200), qos=qos)
            await client.expect_type(raw.PUBLISH)
        await client.abort()
        narrow = raw.session_expiry(1000) + raw.maximum_packet_size(100)
        client = await here.client("a", clean=False, properties=narrow)
        assert (await client.expect_type(raw.PUBREL)).packet_id == 2
        await client.send(raw.ack(raw.PUBCOMP, 2))
        await client.ping()
        assert here.node.metrics.dropped[DropReason.TOO_LARGE] == 2
        assert len(here.session("a").session.inflight) == 0


async def test_nothing_is_too_large_because_of_its_alias() -> None:
    async with room() as here:
        client = await here.client("a", properties=raw.topic_alias_maximum(1) + raw.maximum_packet_size(30))
        await client.subscribe(("topic", 0))
        got: list[tuple[str, Any]] = []
        for size in (20, 17, 20):  # without an alias, the first has the size that the client accepts
            here.broker.publish("topic", bytes(size))
            packet = await client.expect_type(raw.PUBLISH)
            got.append((packet.topic, packet.get(raw.TOPIC_ALIAS)))
        assert got == [("topic", None), ("topic", 1), ("", 1)]


async def test_topic_aliases_towards_a_client_that_allows_two() -> None:
    async with room() as here:
        client = await here.client("a", properties=raw.topic_alias_maximum(2))
        await client.subscribe(("#", 0))
        got: list[tuple[str, Any]] = []
        for topic in ("one", "two", "three", "one", "two", "three"):
            here.broker.publish(topic, b"x")
            packet = await client.expect_type(raw.PUBLISH)
            got.append((packet.topic, packet.get(raw.TOPIC_ALIAS)))
        assert got == [("one", 1), ("two", 2), ("three", None), ("", 1), ("", 2), ("three", None)]


async def test_hooks_see_each_delivery_change_it_and_stop_it() -> None:
    def personal(client: ClientInfo, message: Message) -> Message | Deny | None:
        if message.payload == b"secret":
            return DROP
        return Message(message.topic, message.payload + client.client_id.encode(), message.qos)

    async with room() as here:
        done: Counter[tuple[str, str]] = Counter()
        hooks = here.node.hooks
        hooks.add("message.deliver", personal)
        hooks.add("message.acked", lambda client, message: done.update([("acked", client.client_id)]))
        hooks.add("delivery.completed", lambda client, message: done.update([("completed", client.client_id)]))
        one, two = await here.client("1"), await here.client("2")
        for client in (one, two):
            await client.subscribe(("t", 2))
        for payload, qos in ((b"secret", 1), (b"for ", 1), (b"for ", 2), (b"for ", 0)):
            here.broker.publish("t", payload, qos=qos)
            if payload != b"secret":
                await one.take_publish("t", b"for 1", qos=qos)
                await two.take_publish("t", b"for 2", qos=qos)
        await one.ping()
        await two.ping()
        assert done == {("acked", "1"): 2, ("acked", "2"): 2, ("completed", "1"): 3, ("completed", "2"): 3}
        assert here.node.metrics.dropped[DropReason.DELIVERY_HOOK] == 2


@pytest.mark.parametrize("durability", ["memory", "os"])
async def test_hooks_hear_how_each_delivery_came(durability: str, tmp_path: Path) -> None:
    heard: dict[str, list[tuple[str, str]]] = {"message.delivered": [], "delivery.completed": []}

    def hear(point: str, message: Message, delivery: str) -> None:
        heard[point].append((message.payload.decode(), delivery))

    async with room(store={"durability": durability, "path": str(tmp_path / "store")}) as here:
        for point in heard:
            here.node.hooks.add(point, lambda _, message, delivery, point=point: hear(point, message, delivery))
        client, publisher = await here.stay("a"), await here.client("p")
        await client.subscribe(("t", 2))
        for qos in range(3):
            await publisher.publish("t", b"live %d" % qos, qos=qos)
            await client.take_publish("t", b"live %d" % qos, qos=qos)
        await client.disconnect()
        await client.expect_close()
        for qos in range(3):
            await publisher.publish("t", b"waited %d" % qos, qos=qos)
        client = await here.stay("a")
        for qos in range(3):
            await client.take_publish("t", b"waited %d" % qos, qos=qos)
        await publisher.publish("t", b"resent", qos=1)
        await client.expect_publish("t", b"resent", qos=1)
        await client.abort()
        client = await here.stay("a")
        await client.take_publish("t", b"resent", qos=1)
        for topic in ("r/1", "r/2"):
            await publisher.publish(topic, b"retained", qos=1, retain=True)
        congest(here, "a")
        await client.subscribe(("r/#", 1))
        await publisher.publish("r/2", b"after it", qos=1)
        congest(here, "a", on=False)
        for _ in range(3):
            await client.acknowledge(await client.expect_type(raw.PUBLISH | 2))
        await client.ping()
    expected = [(f"{way} {qos}", way) for way in ("live", "waited") for qos in range(3)]
    last = [("after it", "waited"), *[("retained", "retained")] * 2]
    completed, delivered = heard["delivery.completed"], heard["message.delivered"]
    assert (completed[:-3], sorted(completed[-3:])) == ([*expected, ("resent", "resent")], last)
    assert (delivered[:-3], sorted(delivered[-3:])) == ([*expected, ("resent", "live"), ("resent", "resent")], last)


async def test_qos_can_be_raised_to_that_of_the_subscription() -> None:
    async with room(session={"upgrade_qos": True}) as here:
        client = await here.client("a")
        await client.subscribe(("t", 2))
        here.broker.publish("t", b"x")
        await client.take_publish("t", b"x", qos=2)


async def test_what_a_member_did_not_finish_goes_to_another() -> None:
    async with room(session={"max_inflight": 2}) as here:
        leaving = await here.client("leaving")
        await leaving.subscribe(("$share/g/t", 1))
        for number in range(4):
            here.broker.publish("t", b"%d" % number, qos=1)
        for number in range(2):
            await leaving.expect_publish("t", b"%d" % number, qos=1)
        staying = await here.client("staying", properties=raw.receive_maximum(10))
        await staying.subscribe(("$share/g/t", 1))
        await leaving.disconnect()
        got = {(await staying.expect_type(raw.PUBLISH)).payload for _ in range(2)}
        assert len(got) == 2
        for packet_id, *_ in here.session("staying").session.inflight.export()[1]:
            await staying.send(raw.ack(raw.PUBACK, packet_id))
        got |= {(await staying.expect_type(raw.PUBLISH)).payload for _ in range(2)}
        assert got == {b"0", b"1", b"2", b"3"}


@given(st.lists(st.sampled_from(["publish", "read", "acknowledge", "twice", "reconnect"]), max_size=60), st.data())
@settings(max_examples=40)
def test_nothing_is_lost_and_qos_2_comes_once_whatever_the_client_does(steps: list[str], data: st.DataObject) -> None:
    """A client that reads late, acknowledges late or twice, and loses its connection at any moment."""
    trio.run(_play, steps, data)


async def _play(steps: list[str], data: st.DataObject) -> None:
    published: dict[int, list[bytes]] = {1: [], 2: []}
    received: dict[int, list[bytes]] = {1: [], 2: []}
    open_2: set[int] = set()  # QoS 2 packet ids that the client has taken over
    async with room(session={"max_inflight": 3}) as here:
        client = await here.stay("a")
        await client.subscribe(("q/1", 1), ("q/2", 2))
        unanswered: list[raw.Received] = []

        def take(packet: raw.Received) -> None:
            if packet.type == raw.PUBLISH:
                new = packet.qos == 1 or packet.packet_id not in open_2
                if packet.qos == 2:
                    open_2.add(packet.packet_id)
                if new:
                    received[packet.qos].append(packet.payload)
            unanswered.append(packet)

        async def settle() -> None:
            """Read until the broker has nothing more to say."""
            await client.send(raw.PINGREQ)
            while (packet := await client.receive()).type != raw.PINGRESP[0]:
                take(packet)

        async def answer(packet: raw.Received) -> None:
            if packet.type == raw.PUBLISH:
                await client.send(raw.ack(raw.PUBACK if packet.qos == 1 else raw.PUBREC, packet.packet_id))
            else:
                open_2.discard(packet.packet_id)
                await client.send(raw.ack(raw.PUBCOMP, packet.packet_id))

        for step in steps:
            if step == "publish":
                qos = data.draw(st.integers(1, 2))
                payload = b"%d" % sum(map(len, published.values()))
                published[qos].append(payload)
                here.broker.publish(f"q/{qos}", payload, qos=qos)
            elif step == "read":
                await settle()
            elif step in ("acknowledge", "twice") and unanswered:
                packet = unanswered.pop(0)
                for _ in range(1 + (step == "twice" and packet.type == raw.PUBLISH)):
                    await answer(packet)
            elif step == "reconnect":
                await client.abort()
                unanswered.clear()
                client = await here.stay("a")
            assert len(here.session("a").session.inflight) <= 3
        await settle()
        while unanswered:
            await answer(unanswered.pop(0))
            await settle()
        assert received[2] == published[2]
        assert list(dict.fromkeys(received[1])) == published[1]
        assert len(here.session("a").session.inflight) == 0
        assert here.session("a").session.queue.length == 0


@pytest.mark.parametrize("qos", [0, 1])
async def test_what_waits_for_a_client_that_is_away_is_bounded_by_all_that_it_weighs(qos: int) -> None:
    async with room(session={"max_queue_bytes": "1MiB"}) as here:
        dropped: list[str] = []
        here.node.hooks.add("message.dropped", lambda client, message, word: dropped.append(word))
        away, publisher = await here.stay("away"), await here.client("p")
        await away.subscribe(("#", qos))
        await away.disconnect()
        large = raw.user_property("k", "v" * 60_000)
        gc.collect()
        tracemalloc.start()
        for number in range(200):  # 12 MB
            await publisher.publish("t" * 900, b"%d" % number, qos=qos, properties=large)
        await publisher.ping()
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        queue = here.session("away").session.queue
        assert 15 <= queue.length <= 17
        assert dropped == ["queue_full"] * (200 - queue.length)
        assert here.node.metrics.dropped[DropReason.QUEUE_FULL] == 200 - queue.length
        # what a message came as may be kept beside it
        assert kept < 3 * 1_048_576


def route(here: Room, message: Message) -> None:
    """Past all that checks what hooks and plugins publish."""
    here.node.services.pubsub.publish(message, trio.current_time())


#: A value that no decoder lets through and that only 5.0 writes.
UNWRITABLE: Any = {"user_property": [("nul \0", "x")]}


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("aliases", [0, 10], ids=["shared form", "form of its own"])
@pytest.mark.parametrize("way", ["direct", "queued", "retained"])
async def test_what_cannot_be_written_costs_that_message_alone(
    qos: int, aliases: int, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(session={"max_queue_bytes": 0}) as here:
        dropped: list[tuple[str, str, str]] = []
        here.node.hooks.add("message.dropped", lambda c, m, reason: dropped.append((c.client_id, m.topic, reason)))
        client = await here.client("a", properties=raw.topic_alias_maximum(aliases))
        if way == "queued":
            congest(here, "a")
        if way != "retained":
            await client.subscribe(("#", 2))
        for message in (
            Message("t/bad", b"x", qos, way == "retained", UNWRITABLE),
            # as 3.1.1 just can have it; 5.0 needs a byte more
            Message("t/large", bytes(268_435_455 - 9 - 2 * (qos > 0)), qos, False),
            Message("t/good", b"x", qos, way == "retained"),
        ):
            if way != "retained" or len(message.payload) < 10:
                route(here, message)
        if way == "queued":
            await trio.testing.wait_all_tasks_blocked()
            congest(here, "a", on=False)
        if way == "retained":
            await client.subscribe(("#", 2))
        await client.take_publish("t/good", b"x", qos=qos)
        await client.ping()
        expected = [("a", "t/bad", "unwritable"), ("a", "t/large", "too_large")]
        assert dropped == expected[: 1 if way == "retained" else 2]
        assert len(here.session("a").session.inflight) == 0
        assert here.node.metrics.dropped[DropReason.UNWRITABLE] == 1
    assert [record.levelname for record in caplog.records if "topic t/bad: " in record.message] == ["WARNING"]


async def test_what_cannot_be_written_for_the_version_that_a_client_comes_back_with() -> None:
    async with room() as here:
        client = await here.client("a", version=4, clean=False)
        await client.subscribe(("t", 1))
        route(here, Message("t", b"bad", 1, properties=UNWRITABLE))
        route(here, Message("t", b"good", 1))
        for payload in (b"bad", b"good"):
            await client.expect_publish("t", payload, qos=1)
        await client.abort()
        client = await here.stay("a")
        assert (await client.take_publish("t", b"good", qos=1)).dup
        await client.ping()
        assert len(here.session("a").session.inflight) == 0


@pytest.mark.parametrize("start", [0.0, 1 / 3, 1e9 + 0.1])
@pytest.mark.parametrize("seconds", [0xFFFF_FFFF, 7])
async def test_a_message_expiry_is_never_written_longer_than_it_was_given(
    seconds: int, start: float, autojump_clock: MockClock
) -> None:
    await trio.sleep(start)
    async with room() as here:
        client, publisher = await here.client("a"), await here.client("p")
        await client.subscribe(("t", 1))
        for _ in range(10):
            await trio.sleep(0.1)
            await publisher.publish("t", b"x", qos=1, properties=raw.message_expiry(seconds))
            assert (await client.take_publish("t", b"x", qos=1)).get(raw.MESSAGE_EXPIRY) == seconds


@pytest.mark.parametrize(
    "text", ["x" * 70_000, "nul \0", "half a pair \ud800", "bell \a"], ids=["long", "nul", "half a pair", "bell"]
)
async def test_any_text_of_a_hook_can_be_told(text: str) -> None:
    reason = Reason.BAD_USER_NAME_OR_PASSWORD  # in CONNACK alone
    async with room() as here:
        hooks = here.node.hooks
        hooks.add("client.authenticate", lambda client, password: Deny(reason, text) if client.username else None)
        hooks.add("client.subscribe", lambda client, request, properties: Deny(reason, text))
        hooks.add("client.unsubscribe", lambda client, filter, properties: Deny(reason, text))
        hooks.add("message.publish", lambda client, message: Deny(reason, text, disconnect=message.payload == b"out"))
        refused = here.wire()
        await refused.send(raw.connect("r", username="u"))
        assert (await refused.expect_type(raw.CONNACK)).reason == reason
        client = await here.client("a")
        assert await client.subscribe("t") == [Reason.UNSPECIFIED_ERROR]
        await client.send(raw.unsubscribe(1, "t"))
        assert (await client.expect_type(raw.UNSUBACK)).reasons == [Reason.UNSPECIFIED_ERROR]
        for qos in (1, 2):
            answer = await client.publish("t", b"x", qos=qos)
            assert answer is not None
            assert answer.reason == Reason.UNSPECIFIED_ERROR
            assert answer.get(raw.REASON_STRING)
        await client.send(raw.publish("t", b"out"))
        await client.expect_disconnect(Reason.UNSPECIFIED_ERROR)


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_reason_that_is_no_failure_fits_its_packet_too(qos: int) -> None:
    async with room() as here:
        here.node.hooks.add("message.publish", lambda client, message: Withhold(Reason.NO_SUBSCRIPTION_EXISTED))
        client = await here.client("a")
        answer = await client.publish("t", b"x", qos=qos)
        assert answer is not None
        assert answer.reason == 0


async def test_a_reason_string_that_is_too_large_for_the_client_is_left_out() -> None:
    async with room() as here:
        here.node.hooks.add("message.publish", lambda client, message: Deny(text="x" * 100))
        client = await here.client("a", properties=raw.maximum_packet_size(50))
        answer = await client.publish("t", b"x", qos=1)
        assert answer is not None
        assert (answer.reason, answer.properties) == (Reason.NOT_AUTHORIZED, [])


async def test_a_bridge_gets_as_many_at_a_time_as_it_can_take() -> None:
    async with room() as here:
        bridge, publisher = here.wire(4), await here.client("p")
        await bridge.send(raw.connect("b", version=4).replace(b"MQTT\4", b"MQTT\x84"))
        await bridge.expect_type(raw.CONNACK)
        await bridge.subscribe(("t", 2))
        for _ in range(30):
            await publisher.publish("t", b"x", qos=2)
        for _ in range(20):
            await bridge.expect_publish("t", b"x", qos=2)
        await bridge.ping()


async def test_acknowledgements_of_nothing_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("t", 1))
        here.broker.publish("t", b"x", qos=1)
        message = await client.expect_publish("t", b"x", qos=1)
        calls = 0
        answered = Inflight.answered

        def counted(self: Inflight[Any], packet: Any, now: float, keeps_payload: object) -> Any:
            nonlocal calls
            calls += 1
            return answered(self, packet, now, keeps_payload)

        monkeypatch.setattr(Inflight, "answered", counted)
        late = [raw.ack(raw.PUBACK, packet_id) for packet_id in range(1000, 2000)]
        here.read("a", b"".join([*late, raw.ack(raw.PUBACK, message.packet_id), *late]))
        assert here.node.metrics.messages_acked == 1
        assert calls <= 3
        await client.ping()


async def test_a_qos_2_publish_and_its_pubrel_leave_behind_their_commits(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 2))
        async with life.full(mock_clock):
            life.node.messages.publish("t", b"x", qos=2)
            await subscriber.expect_silence()
        await subscriber.expect_publish("t", b"x", qos=2)
        async with life.full(mock_clock):
            await subscriber.send(raw.ack(raw.PUBREC, 1))
            await subscriber.expect_silence()
        await subscriber.expect(raw.ack(raw.PUBREL, 1))


async def test_what_waits_is_told_although_something_else_is_dropped_for_it() -> None:
    hooks, told = Hooks(), list[tuple[str, bytes]]()
    hooks.add("message.queued", lambda client, message: told.append(("queued", message.payload)))
    hooks.add("message.dropped", lambda client, message, reason: told.append(("dropped", message.payload)))
    async with room(hooks=hooks, session={"max_queue_length": 1}) as here:
        client = await here.stay("a")
        await client.subscribe(("t", 1))
        await client.disconnect()
        for payload in (b"1", b"2"):
            here.broker.publish("t", payload, qos=1)
            await here.admin.ending.quiet()
        assert told == [("queued", b"1"), ("queued", b"2"), ("dropped", b"1")]


async def test_acknowledged_messages_are_counted_at_each_qos() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("t", 2))
        for number, qos in enumerate((0, 1, 2, 2), 0):
            here.broker.publish("t", b"x", qos=qos)
            await client.take_publish("t", b"x", qos=qos)
            await client.ping()
            assert here.node.metrics.messages_acked == number


ORDERS = StreamConfig(name="orders", filters=("orders/#",))
FROM_ITS_BEGINNING = raw.user_property("from", "earliest")


async def test_what_a_client_gets_of_a_stream_fits_its_window_and_goes_on_when_it_is_back() -> None:
    async with room() as here:
        await here.node.streams.create(ORDERS)
        for number in range(5):
            here.broker.publish("orders/1", b"%d" % number, qos=1)
        client = await here.client("a", clean=False, properties=raw.session_expiry(1000) + raw.receive_maximum(2))
        await client.send(raw.subscribe(1, ("$stream/orders/#", 1), properties=FROM_ITS_BEGINNING))
        await client.expect_type(raw.SUBACK)
        for number in range(2):
            await client.expect_publish("orders/1", b"%d" % number, qos=1)
        await client.expect_nothing()
        assert len(here.session("a").session.inflight) == 2
        await client.abort()
        client = await here.stay("a")
        for number in range(5):
            assert (await client.expect_type(raw.PUBLISH)).payload == b"%d" % number


async def test_what_a_durable_session_has_got_of_a_stream_comes_again_after_a_power_cut(mock_clock: MockClock) -> None:
    disk = Disk()
    async with disk.broker() as life:
        await life.node.streams.create(ORDERS)
        life.node.messages.publish("orders/1", b"x", qos=1)
        wire, _ = await life.stay("a")
        await wire.send(raw.subscribe(1, ("$stream/orders/#", 1), properties=FROM_ITS_BEGINNING))
        while (await wire.receive()).type != raw.PUBLISH:
            pass
        await life.rests()
        mock_clock.jump(DELAY)
        while not disk.engine.count(MESSAGES):
            await trio.lowlevel.checkpoint()
    async with disk.broker() as life:
        wire, _ = await life.stay("a")
        packet = await wire.expect_type(raw.PUBLISH)
        assert (packet.payload, packet.dup) == (b"x", True)


async def test_what_a_crashed_session_was_to_get_is_counted_as_dropped() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe(("t", 0))
        session = here.session("a")
        assert session.channel is not None
        (target,) = here.node.router.targets("t")
        outbound = session._outbound  # pyright: ignore[reportPrivateUsage]
        outbound.lose((Message("t", b"x", 1), target))
        outbound.lose(mail.Writable(session.channel))
        assert here.node.metrics.dropped[DropReason.SESSION_ENDED] == 1
