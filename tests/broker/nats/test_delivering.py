"""MSG and HMSG: what a client gets of what others publish, by MQTT and by NATS."""

import trio

from tests.broker.nats.speaking import nats_room
from tests.conformance import raw
from trunkline.broker.metrics import DropReason, LimitKind
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import Deny
from trunkline.mqtt.message import Message
from trunkline.mqtt.publication import Publication
from trunkline.mqtt.reasons import Reason


async def test_what_is_published_by_mqtt_at_each_qos() -> None:
    async with nats_room() as here:
        speaker, wire = await here.speaker(), await here.wire("device")
        await speaker.say(b"SUB plant.> 1")
        assert await speaker.said() == b""
        for qos in (0, 1, 2):
            await wire.publish("plant/1/temp.c", b"%d" % qos, qos=qos, retain=qos == 1)
        await wire.ping()
        expected = b"".join(b"MSG plant.1.temp//c 1 1\r\n%d\r\n" % qos for qos in (0, 1, 2))
        assert await speaker.said() == expected
        assert here.node.metrics.messages_out[0] == 3


async def test_a_burst_comes_one_by_one_and_in_order() -> None:
    async with nats_room() as here:
        speaker, wire = await here.speaker(), await here.wire("device")
        await speaker.say(b"SUB t 1", b"SUB t q 2")
        assert await speaker.said() == b""
        await wire.send(*[raw.publish("t", b"%03d" % number) for number in range(300)])
        await wire.ping()
        said = (await speaker.said()).split(b"\r\n")[:-1]
        for sid in (b"1", b"2"):
            mine = [said[at + 1] for at in range(0, len(said), 2) if said[at] == b"MSG t %b 3" % sid]
            assert mine == [b"%03d" % number for number in range(300)]


async def test_retained_messages_are_not_for_clients_of_nats() -> None:
    async with nats_room() as here:
        speaker, wire = await here.speaker(), await here.wire("device")
        await wire.publish("t", b"kept", qos=1, retain=True)
        await speaker.say(b"SUB t 1")
        assert await speaker.said() == b""
        await speaker.publish(b"t", b"")  # which takes no retained message away
        assert await speaker.said() == b"MSG t 1 0\r\n\r\n"
        assert [each.topic for each in here.broker.retained] == ["t"]


async def test_a_will_comes() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        wire = await here.wire("device", will=raw.Will("gone/device", b"bye", 1))
        await speaker.say(b"SUB gone.* 1")
        assert await speaker.said() == b""
        await wire.abort()
        await speaker.expect(b"MSG gone.device 1 3", b"bye")


async def test_wildcards_do_not_match_what_begins_with_a_dollar() -> None:
    async with nats_room() as here:
        speaker, wire = await here.speaker(), await here.wire("device")
        await speaker.say(b"SUB > 1", b"SUB * 2", b"SUB $own.> 3")
        assert await speaker.said() == b""
        await wire.publish("$own/x", b"", qos=1)
        assert await speaker.said() == b"MSG $own.x 3 0\r\n\r\n"


async def test_groups_are_one_for_both_protocols() -> None:
    async with nats_room() as here:
        speaker, wire = await here.speaker(), await here.wire("worker")
        await speaker.say(b"SUB jobs.* w 1")
        assert await speaker.said() == b""
        await wire.subscribe(("$share/w/jobs/+", 0))
        for number in range(20):
            await speaker.publish(b"jobs.%d" % number)
        mine = (await speaker.said()).count(b"MSG jobs.")
        assert 0 < mine < 20
        assert here.node.metrics.messages_out[0] == 20


async def test_hooks_and_rules_for_reading_hold() -> None:
    def change(client: ClientInfo, message: Publication) -> Publication | Deny:
        return Deny(Reason.NOT_AUTHORIZED) if message.topic == "no" else Message("other", b"changed")

    def check(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Deny | None:
        return Deny(Reason.NOT_AUTHORIZED) if action == "receive" and topic == "secret" else None

    seen: list[tuple[str, str]] = []
    async with nats_room() as here:
        hooks = here.node.hooks
        hooks.add("message.deliver", change)
        hooks.add("client.check_acl", check)  # type: ignore[arg-type]
        hooks.add("message.delivered", lambda client, message, delivery: seen.append((message.topic, delivery)))
        hooks.add("delivery.completed", lambda client, message, delivery: seen.append(("done", delivery)))
        speaker = await here.speaker()
        await speaker.say(b"SUB > 1")
        for topic in (b"a", b"no", b"secret"):
            await speaker.publish(topic)
        assert await speaker.said() == b"MSG other 1 7\r\nchanged\r\n"
        assert seen == [("other", "live"), ("done", "live")]
        dropped = here.node.metrics.dropped
        assert (dropped[DropReason.DELIVERY_HOOK], dropped[DropReason.READ_NOT_AUTHORIZED]) == (1, 1)


async def test_a_message_that_has_expired_is_dropped() -> None:
    async with nats_room() as here:
        gone = Message("a", b"", properties={"message_expiry_interval": 0})
        here.node.hooks.add("message.publish", lambda *_: gone)
        speaker = await here.speaker()
        await speaker.say(b"SUB a 1")
        await speaker.publish(b"a")
        assert await speaker.said() == b""


async def test_the_group_of_a_client_that_has_left_goes_on_without_it() -> None:
    async with nats_room() as here:
        leaving, staying, publisher = await here.speaker(), await here.speaker(), await here.wire("p")
        for speaker in (leaving, staying):
            await speaker.say(b"SUB a q 1")
            assert await speaker.said() == b""
        await leaving.leave()
        for _ in range(10):
            await publisher.publish("a", b"x", qos=1)
        said = await staying.said()
        while len(here.connections) == 2:
            await trio.lowlevel.checkpoint()
        for _ in range(10):
            await publisher.publish("a", b"y", qos=1)
        assert (said + await staying.said()).count(b"y") == 10


async def test_a_client_with_many_subscriptions_to_a_subject_gets_all_copies() -> None:
    async with nats_room() as here:
        speaker = await here.speaker()
        await speaker.say(*[b"SUB a %d" % sid for sid in range(30)])
        payload = bytes(100_000)
        await speaker.publish(b"a", payload)
        said = await speaker.said()
        assert said == b"".join(b"MSG a %d 100000\r\n%b\r\n" % (sid, payload) for sid in range(30))


async def test_copies_beyond_what_may_wait_for_a_client_are_not_made() -> None:
    async with nats_room(nats={"max_pending": 4 << 20}) as here:
        greedy, other = await here.speaker(), await here.speaker()
        await greedy.say(*[b"SUB a %d" % sid for sid in range(200)])
        assert await greedy.said() == b""
        payload = bytes(1 << 19)
        await other.publish(b"a", payload)
        assert await other.said() == b""
        while not here.node.metrics.limited[LimitKind.NATS_PENDING]:
            await trio.lowlevel.checkpoint()
        assert here.node.metrics.messages_out[0] < 100  # with what the sockets hold
        while await greedy.read():
            pass
        assert len(here.connections) == 1
