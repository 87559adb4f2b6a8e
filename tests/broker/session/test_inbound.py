"""PUBLISH from a client, up to routing and the acknowledgement."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.disk import Disk
from tests.broker.room import room
from tests.broker.test_durability_by_client import by_user
from tests.conformance import raw
from trunkline.broker.metrics import DropReason
from trunkline.hooks import ALLOW, DROP, TAKEN, Allow, ClientInfo, Deny, Hooks, Withhold
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import PacketType, Puback
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.awaiting_rel import AwaitingRel
from trunkline.streams import Discard, StreamConfig


async def test_qos_2_is_routed_at_its_pubrel_and_once_whatever_is_repeated() -> None:
    async with room() as here:
        client, watcher = await here.stay("a"), await here.client("w")
        await watcher.subscribe(("t", 0))
        await client.send(*[raw.publish("t", b"x", qos=2, packet_id=9, dup=again) for again in (False, True, True)])
        for _ in range(3):
            assert (await client.expect_type(raw.PUBREC)).packet_id == 9
        await watcher.expect_nothing(after=client)
        await client.abort()
        client = await here.stay("a")
        await client.send(raw.publish("t", b"x", qos=2, packet_id=9, dup=True), raw.ack(raw.PUBREL, 9))
        await client.expect_type(raw.PUBREC)
        await client.expect(raw.ack(raw.PUBCOMP, 9))
        await watcher.expect_publish("t", b"x")
        await client.send(raw.ack(raw.PUBREL, 9))
        assert (await client.expect_type(raw.PUBCOMP)).reason == 0  # of a resumed session: its PUBCOMP was lost
        await watcher.expect_nothing(after=client)
        assert len(here.session("a").session.awaiting_rel) == 0


async def test_the_receive_maximum_counts_what_is_owed_an_acknowledgement() -> None:
    async with room(mqtt={"receive_maximum": 3}) as here:
        client = await here.client("a")
        await client.send(*[raw.publish("t", b"", qos=2, packet_id=packet_id) for packet_id in (1, 2)])
        for _ in (1, 2):
            await client.expect_type(raw.PUBREC)
        # each of them is acknowledged before the next is looked at, however they come; routes are there in no time
        ones = [raw.publish("t" if n % 7 else f"t{n}", b"", qos=1, packet_id=n) for n in range(3, 60)]
        await client.send(*ones, raw.subscribe(60, ("u", 0)), *ones)
        for packet_id in range(3, 60):
            assert (await client.expect_type(raw.PUBACK)).packet_id == packet_id
        await client.expect_type(raw.SUBACK)
        for packet_id in range(3, 60):
            assert (await client.expect_type(raw.PUBACK)).packet_id == packet_id
        await client.send(raw.publish("t", b"", qos=2, packet_id=3))
        await client.expect_type(raw.PUBREC)
        await client.send(raw.publish("t", b"", qos=2, packet_id=2, dup=True))  # that one counts already
        await client.expect_type(raw.PUBREC)
        await client.send(raw.publish("t", b"", retain=True))  # QoS 0 is not acknowledged
        await client.ping()
        await client.send(raw.publish("t", b"", qos=1, packet_id=5))
        await client.expect_disconnect(0x93)


async def test_what_an_earlier_connection_has_left_open_does_not_count() -> None:
    async with room(mqtt={"receive_maximum": 2}) as here:
        client = await here.stay("a")
        await client.send(*[raw.publish("t", b"", qos=2, packet_id=packet_id) for packet_id in (1, 2)])
        for _ in range(2):
            await client.expect_type(raw.PUBREC)
        await client.abort()
        client = await here.stay("a")
        await client.send(*[raw.publish("t", b"", qos=2, packet_id=packet_id) for packet_id in (3, 4)])
        for _ in range(2):
            await client.expect_type(raw.PUBREC)
        await client.send(raw.publish("t", b"", qos=2, packet_id=5))
        await client.expect_disconnect(0x93)


@pytest.mark.parametrize(
    ("version", "maximum", "ends"), [(5, 5, True), (5, 6, False), (5, 65_535, False), (4, 5, False)]
)
async def test_the_receive_maximum_counts_what_is_held_while_access_is_asked_for(
    autojump_clock: MockClock, version: int, maximum: int, ends: bool
) -> None:
    answer = trio.Event()

    async def check(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Allow:
        if topic == "asked":
            await answer.wait()
        return ALLOW

    hooks = Hooks()
    hooks.add("client.check_acl", check)
    async with room(hooks=hooks, mqtt={"receive_maximum": maximum}) as here:
        client = await here.client("a", version=version)
        for packet_id in (1, 2):  # two are open
            await client.send(raw.publish("t", b"", qos=2, packet_id=packet_id, version=version))
            await client.expect_type(raw.PUBREC)
        held = [("asked", 1, 3), ("t", 2, 4), ("t", 2, 2), ("t", 1, 5), ("t", 1, 6)]  # one of them repeats an open one
        await client.send(
            *[raw.publish(topic, b"", qos=qos, packet_id=packet_id, version=version) for topic, qos, packet_id in held],
            raw.publish("t", b"", version=version),
            raw.PINGREQ,
        )
        await trio.sleep(1)
        if ends:
            await client.expect_disconnect(0x93)
            return
        answer.set()
        for _, qos, packet_id in held:
            got = await client.receive()
            assert (got.type, got.packet_id) == ((0, raw.PUBACK, raw.PUBREC)[qos], packet_id)
        await client.expect(raw.PINGRESP)


async def test_acknowledgements_behind_one_that_waits_leave_in_order(autojump_clock: MockClock) -> None:
    """As that of a message which has to be committed: the client's next packets are handled meanwhile."""
    async with room(mqtt={"receive_maximum": 3}) as here:
        client = await here.stay("a")
        outbound = here.session("a")._outbound  # pyright: ignore[reportPrivateUsage]
        commit = outbound.answers.ledger.owe(PacketType.PUBACK, (1,))
        await client.send(
            raw.publish("t", b"", qos=1, packet_id=2),
            raw.publish("t", b"", qos=2, packet_id=3),
            raw.ack(raw.PUBREL, 3),
            raw.subscribe(4, ("u", 0)),
            raw.ack(raw.PUBREL, 5),
            raw.PINGREQ,
        )
        await client.expect(raw.PINGRESP)  # it answers to no message, and keeps the connection alive meanwhile
        assert (len(outbound.answers.ledger.entries), len(outbound.answers.ledger)) == (6, 2)
        outbound.answers.write(Puback(1), commit)
        outbound.flush()
        owed = [(raw.PUBACK, 1), (raw.PUBACK, 2), (raw.PUBREC, 3), (raw.PUBCOMP, 3), (raw.SUBACK, 4), (raw.PUBCOMP, 5)]
        for kind, packet_id in owed:
            got = await client.receive()
            assert (got.type, got.packet_id) == (kind, packet_id)

        commit = outbound.answers.ledger.owe(PacketType.PUBACK, (1, 2))
        await client.send(*[raw.publish("t", b"", qos=1, packet_id=packet_id) for packet_id in (3, 4)])
        await client.expect_disconnect(0x93)
        client = await here.stay("a")
        outbound.answers.write(Puback(1), commit)  # its connection is over
        outbound.flush()
        await client.ping()


async def test_a_client_is_not_read_from_that_is_owed_too_many_answers() -> None:
    async with room(mqtt={"receive_maximum": 3}) as here:
        client = await here.client("a", version=4)
        outbound = here.session("a")._outbound  # pyright: ignore[reportPrivateUsage]
        first = outbound.answers.ledger.owe(PacketType.PUBACK, (1,))
        await client.send(*[raw.publish("t", b"", qos=1, packet_id=number, version=4) for number in range(2, 6)])
        await wait_all_tasks_blocked()
        assert [each.is_paused for each in here.node.listeners.connections] == [True]
        outbound.answers.write(Puback(1), first)
        outbound.flush()
        for packet_id in range(1, 6):
            await client.expect(raw.ack(raw.PUBACK, packet_id))
        await client.ping()


async def test_a_client_is_told_a_receive_maximum_that_is_true() -> None:
    async with room() as here:
        client = here.wire()
        assert (await client.connect("a")).get(raw.RECEIVE_MAXIMUM) is None
        await client.send(*[raw.publish("t", b"", qos=2, packet_id=n) for n in range(1, 12_001)])
        for _ in range(12_000):
            assert (await client.expect_type(raw.PUBREC)).reason < 0x80
        await client.ping()
    async with room(session={"max_awaiting_rel": 3}, mqtt={"receive_maximum": 100}) as here:
        client = here.wire()
        assert (await client.connect("a")).get(raw.RECEIVE_MAXIMUM) == 3
        await client.send(*[raw.publish("t", b"", qos=2, packet_id=n) for n in range(1, 5)])
        for _ in range(3):
            await client.expect_type(raw.PUBREC)
        await client.expect_disconnect(0x93)


async def test_qos_2_without_pubrel_is_bounded_by_count_and_by_bytes() -> None:
    async with room(session={"max_awaiting_rel": 3}) as here:
        old = await here.client("old", version=4)
        for packet_id in range(1, 4):
            await old.send(raw.publish("t", b"", qos=2, packet_id=packet_id, version=4))
            await old.expect_type(raw.PUBREC)
        await old.send(raw.publish("t", b"", qos=2, packet_id=4, version=4))
        await old.expect_close()


@pytest.mark.parametrize(
    ("topic", "payload", "properties"),
    [
        ("t", bytes(900), b""),
        ("t" * 900, b"", b""),
        ("t", b"", raw.user_property("k", "v" * 900)),
        ("t", b"", raw.correlation_data(bytes(900))),
    ],
    ids=["payload", "topic", "user-property", "correlation-data"],
)
async def test_qos_2_without_pubrel_is_bounded_by_bytes(topic: str, payload: bytes, properties: bytes) -> None:
    async with room(session={"max_queue_bytes": 20_000}) as here:
        client = await here.client("a")
        held = here.session("a").session.awaiting_rel
        # one by one, then many in a row: these may be taken as one
        for number in range(1, 100):
            packet = raw.publish(topic, payload, qos=2, packet_id=number, properties=properties)
            await client.send(packet)
            if (await client.expect_type(raw.PUBREC)).reason == 0x97:
                break
        assert 10 < number < 20
        assert 18_000 < held.byte_size <= 20_000
        await client.send(*[raw.ack(raw.PUBREL, n) for n in range(1, number)])
        for _ in range(1, number):
            await client.expect_type(raw.PUBCOMP)
        assert held.byte_size == 0
        packets = [raw.publish(topic, payload, qos=2, packet_id=n, properties=properties) for n in range(1, 101)]
        await client.send(*packets)
        reasons = [(await client.expect_type(raw.PUBREC)).reason for _ in packets]
        assert reasons.count(0x97) == 100 - number + 1
        assert here.node.metrics.dropped[DropReason.RECEIVE_MAXIMUM] == reasons.count(0x97) + 1


@pytest.mark.parametrize(("version", "codes"), [(5, [0x87, 0x87]), (4, [0, 0])])
async def test_what_may_not_be_published_is_answered_and_goes_nowhere(version: int, codes: list[int]) -> None:
    async with room() as here:
        here.node.hooks.add("client.check_acl", lambda client, action, topic, qos, retain: Deny(), priority=9)
        client = await here.client("a", version=version)
        answers = []
        for qos in (1, 2):
            await client.send(raw.publish("t", b"x", qos=qos, packet_id=qos, version=version))
            answers.append((await client.receive()).reason)
        await client.send(raw.publish("t", b"x", version=version), raw.ack(raw.PUBREL, 2))
        assert (await client.expect_type(raw.PUBCOMP)).packet_id == 2
        assert answers == codes
        assert here.node.metrics.dropped[DropReason.NOT_AUTHORIZED] == 3


async def test_who_publishes_what_it_may_not_can_be_cut_off() -> None:
    async with room(acl={"deny_action": "disconnect"}) as here:
        client = await here.client("a")
        await client.send(raw.publish("$SYS/broker/version", b"mine"))
        await client.expect_disconnect(0x87)


async def test_hooks_refuse_with_or_without_a_word() -> None:
    def judge(client: ClientInfo, message: Message) -> Deny | None:
        return {"quiet": DROP, "loud": Deny(Reason.QUOTA_EXCEEDED, "enough")}.get(message.topic)

    async with room() as here:
        dropped: list[tuple[str, str]] = []
        here.node.hooks.add("message.publish", judge)
        here.node.hooks.add("message.dropped", lambda client, message, word: dropped.append((message.topic, word)))
        client = await here.client("a")
        await client.subscribe("#")
        assert (await client.publish("quiet", b"", qos=1)).reason == 0x10  # type: ignore[union-attr]
        loud = await client.publish("loud", b"", qos=1)
        assert loud is not None
        assert (loud.reason, b"enough" in loud.data) == (0x97, True)
        assert dropped == [("quiet", "hook"), ("loud", "hook")]


@pytest.mark.parametrize(("answer", "code", "lost"), [(TAKEN, 0, 0), (DROP, 0x10, 1)])
async def test_what_a_hook_keeps_for_itself_comes_once_at_qos_2(answer: Deny, code: int, lost: int) -> None:
    async with room() as here:
        seen: list[Message] = []

        def take(client: ClientInfo, message: Message) -> Deny:
            seen.append(message)
            return answer

        here.node.hooks.add("message.publish", take)
        client = await here.client("a")
        await client.send(
            raw.publish("t", b"", qos=2, packet_id=7), raw.publish("t", b"", qos=2, packet_id=7, dup=True)
        )
        assert [(await client.expect_type(raw.PUBREC)).reason for _ in range(2)] == [code, 0]
        await client.send(raw.ack(raw.PUBREL, 7))
        assert (await client.expect_type(raw.PUBCOMP)).reason == 0
        assert len(seen) == 1
        assert here.node.metrics.dropped[DropReason.HOOK] == lost


async def test_a_hook_gets_nothing_whose_packet_id_cannot_be_kept() -> None:
    """It might keep the message, and the client may send it once more."""
    async with room(session={"max_awaiting_rel": 1}) as here:
        seen: list[Message] = []

        def take(client: ClientInfo, message: Message) -> Withhold:
            seen.append(message)
            return TAKEN

        here.node.hooks.add("message.publish", take)
        client = await here.stay("a")
        await client.send(raw.publish("t", b"", qos=2, packet_id=1))
        await client.expect_type(raw.PUBREC)
        await client.abort()
        client = await here.stay("a")  # on which what was left open does not count
        await client.send(raw.publish("t", b"", qos=2, packet_id=2))
        assert (await client.expect_type(raw.PUBREC)).reason == 0x97
        await client.send(raw.ack(raw.PUBREL, 1), raw.publish("t", b"", qos=2, packet_id=2))
        await client.expect_type(raw.PUBCOMP)
        assert (await client.expect_type(raw.PUBREC)).reason == 0
        assert len(seen) == 2


async def test_a_hook_may_end_the_connection_in_place_of_an_acknowledgement() -> None:
    def cut(client: ClientInfo, message: Message) -> Deny | None:
        return Deny(Reason.SERVER_BUSY, disconnect=True) if message.topic == "bad" else None

    async with room() as here:
        here.node.hooks.add("message.publish", cut)
        client = await here.client("a")
        await client.send(
            raw.publish("good", b"", qos=1, packet_id=1),
            raw.publish("bad", b"", qos=1, packet_id=2),
            raw.publish("good", b"", qos=1, packet_id=3),
        )
        assert (await client.expect_type(raw.PUBACK)).packet_id == 1
        await client.expect_disconnect(0x89)


async def test_a_message_carries_who_when_and_an_id_that_grows() -> None:
    async with room() as here:
        seen: list[Message] = []
        here.node.hooks.add("message.publish", lambda client, message: seen.append(message))
        client = await here.client("a")
        for qos in (0, 1, 2):
            await client.publish("t", b"x", qos=qos)
        assert [message.publisher for message in seen] == ["a"] * 3
        assert sorted({message.guid for message in seen}) == [message.guid for message in seen]
        assert len({message.guid for message in seen}) == 3
        assert all(message.timestamp > 1_600_000_000 for message in seen)


async def test_aliases() -> None:
    async with room(mqtt={"max_topic_alias": 2}) as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("#", 0))
        for topic, alias in (("one", 1), ("two", 2), ("", 1), ("", 2), ("three", 1), ("", 1)):
            await client.send(raw.publish(topic, b"x", properties=raw.topic_alias(alias)))
        for topic in ("one", "two", "one", "two", "three", "three"):
            packet = await watcher.expect_publish(topic, b"x")
            assert not packet.properties
        await client.send(raw.publish("four", b"x", properties=raw.topic_alias(3)))
        await client.expect_disconnect(0x94)


@pytest.mark.parametrize(("version", "codes"), [(5, [0x97, 0x97]), (4, [0, 0])])
async def test_a_payload_that_is_too_large_goes_nowhere(version: int, codes: list[int]) -> None:
    async with room(mqtt={"max_payload_size": 100}) as here:
        dropped: list[str] = []
        here.node.hooks.add("message.dropped", lambda client, message, word: dropped.append(word))
        client, watcher = await here.client("a", version=version), await here.client("w")
        await watcher.subscribe(("#", 0))
        answers = []
        for qos in (1, 2):
            await client.send(raw.publish("t", bytes(101), qos=qos, packet_id=qos, version=version))
            answers.append((await client.receive()).reason)
        assert answers == codes
        await client.send(raw.ack(raw.PUBREL, 2))
        await client.expect_type(raw.PUBCOMP)
        large = raw.publish("t", bytes(101), version=version)
        await client.send(large, large, large, raw.publish("t", bytes(100), version=version))
        await client.ping()
        await watcher.expect_publish("t", bytes(100))
        await watcher.ping()
        leaving = await here.client("l", will=raw.Will("t", bytes(100)))
        will = here.session("l").session.will
        assert will is not None
        will.payload = bytes(101)  # as one that was stored when the limit was higher
        await leaving.abort()
        await watcher.expect_nothing()
        assert dropped == ["payload_too_large"] * 6
        assert (
            here.node.metrics.dropped[DropReason.PAYLOAD_TOO_LARGE]
            == here.node.metrics.snapshot()["messages.dropped"]
            == 6
        )


async def test_a_message_is_forgotten_whose_pubrel_does_not_come_in_time(autojump_clock: MockClock) -> None:
    async with room(session={"await_rel_timeout": 60}) as here:
        dropped: list[tuple[bytes, str]] = []
        here.node.hooks.add("message.dropped", lambda client, m, word: dropped.append((m.payload, word)))
        client, watcher = await here.stay("a"), await here.client("w")
        await watcher.subscribe(("#", 0))
        for number in (1, 2):  # the second time its topic is known, and the messages are taken together
            await client.send(
                *[raw.publish("t", b"%d" % n, qos=2, packet_id=n) for n in range(10 * number, 10 * number + 3)]
            )
            for _ in range(3):
                await client.expect_type(raw.PUBREC)
            await trio.sleep(25)
        await client.send(raw.ack(raw.PUBREL, 11))
        await client.expect_type(raw.PUBCOMP)
        await watcher.expect_publish("t", b"11")
        await trio.sleep(15)
        assert dropped == [(b"10", "await_rel_timeout"), (b"12", "await_rel_timeout")]
        await client.abort()
        await trio.sleep(60)
        assert [payload for payload, _ in dropped[2:]] == [b"20", b"21", b"22"]
        assert here.node.metrics.dropped[DropReason.AWAIT_REL_TIMEOUT] == 5
        assert here.session("a").session.awaiting_rel.byte_size == 0


async def test_another_limit_holds_for_what_waits_for_its_pubrel_already(autojump_clock: MockClock) -> None:
    async with room(session={"await_rel_timeout": 60}) as here:
        client = await here.client("a")
        await client.send(raw.publish("t", b"", qos=2, packet_id=1))
        await client.expect_type(raw.PUBREC)
        inbound = here.session("a")._inbound  # pyright: ignore[reportPrivateUsage]
        dropped = here.node.metrics.dropped
        inbound.enter_zone()
        await trio.sleep(59)
        assert not dropped[DropReason.AWAIT_REL_TIMEOUT]
        await trio.sleep(2)
        assert dropped[DropReason.AWAIT_REL_TIMEOUT] == 1


async def test_nothing_is_looked_for_again_and_again_when_its_time_has_come(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the sum of two times and the difference of two times are rounded to."""
    expire, looks, rounds = AwaitingRel.expire, 0, 200

    def counted(self: AwaitingRel, before: float, limit: int) -> list[Any]:
        nonlocal looks
        looks += 1
        assert looks <= 2 * rounds, "it is looked at for ever"
        return expire(self, before, limit)

    monkeypatch.setattr(AwaitingRel, "expire", counted)
    async with room(session={"await_rel_timeout": 30}) as here:
        client = await here.client("a")
        for number in range(rounds):
            await trio.sleep(0.1 * number / 3)
            await client.send(raw.publish("t", b"", qos=2, packet_id=1))
            await client.expect_type(raw.PUBREC)
            await trio.sleep(31)
        await client.ping()
        assert here.node.metrics.dropped[DropReason.AWAIT_REL_TIMEOUT] == rounds


async def test_answers_to_a_publisher_leave_behind_the_commit_of_the_message(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 2))
        await subscriber.abort()
        publisher, _ = await life.stay("publisher")
        for packet, answer in (
            (raw.publish("t", b"1", qos=1, packet_id=1), raw.ack(raw.PUBACK, 1)),
            (raw.publish("t", b"2", qos=2, packet_id=2), raw.ack(raw.PUBREC, 2)),
            (raw.ack(raw.PUBREL, 2), raw.ack(raw.PUBCOMP, 2)),
        ):
            async with life.full(mock_clock):
                await publisher.send(packet)
                await publisher.expect_silence()
            await publisher.expect(answer)


async def test_an_answer_leaves_behind_the_commit_of_what_a_hook_delivers_in_place_of_the_message(
    mock_clock: MockClock,
) -> None:
    hooks = Hooks()
    hooks.add("message.deliver", lambda client, message: replace(message, payload=b"other"))
    async with Disk().broker(hooks=hooks) as life:
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 1))
        publisher = await life.wire()
        await publisher.connect("publisher")
        async with life.full(mock_clock):
            await publisher.send(raw.publish("t", b"x", qos=1, packet_id=1))
            assert (await subscriber.expect_type(raw.PUBLISH)).payload == b"other"
            await publisher.expect_silence()
        await publisher.expect(raw.ack(raw.PUBACK, 1))


@pytest.mark.parametrize(("username", "qos"), [("memory", 1), ("stored", 0)])
async def test_of_a_burst_that_a_stream_refuses_in_part_each_message_waits_as_by_itself(
    mock_clock: MockClock, username: str, qos: int
) -> None:
    settings: dict[str, Any] = {"mqtt": {"max_unacknowledged_bytes": 1000}, "session": {"upgrade_qos": True}}
    async with Disk().broker(hooks=by_user(), **settings) as life:
        await life.node.streams.create(StreamConfig(name="s", filters=("t",), max_messages=6, discard=Discard.NEW))
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 1))
        await subscriber.abort()
        client, _ = await life.stay("a", username=username)
        await client.publish("t", b"", qos=qos)  # whether it may is known from now on
        await client.ping()
        async with life.full(mock_clock):
            burst = [raw.publish("t", bytes(500), qos=qos, packet_id=number * qos or None) for number in range(1, 9)]
            await client.send(b"".join(burst))
            if qos:
                answers = [await client.expect_type(raw.PUBACK) for _ in burst]
                assert [answer.reason for answer in answers] == [0] * 5 + [Reason.QUOTA_EXCEEDED] * 3
            else:
                await wait_all_tasks_blocked()
                assert sum(each.is_paused for each in life.node.listeners.connections) == 1


async def test_what_is_sent_weighs_until_it_is_gathered_or_need_not_be_stored(mock_clock: MockClock) -> None:
    async with Disk().broker() as life:
        committer = life.node.services.committer
        assert committer is not None
        subscriber, _ = await life.stay("subscriber")
        await subscriber.subscribe(("t", 1))
        publisher = await life.wire()
        await publisher.connect("publisher")
        async with life.full(mock_clock):
            await publisher.send(raw.publish("t", b"gathered", qos=1, packet_id=1))
            await subscriber.expect_type(raw.PUBLISH)
            await life.rests()
            assert committer.noted == 0
            await publisher.send(raw.publish("t", b"acknowledged", qos=1, packet_id=2))
            last = await subscriber.expect_type(raw.PUBLISH)
            assert committer.noted > 0
            await subscriber.acknowledge(last)
            await subscriber.ping()
            assert committer.noted == 0
        for packet_id in (1, 2):
            await publisher.expect(raw.ack(raw.PUBACK, packet_id))
        assert committer.noted == 0
