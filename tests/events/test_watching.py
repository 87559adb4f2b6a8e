from collections import Counter
from pathlib import Path

from tests.conformance import raw
from tests.events.recordings import recorded, recording
from trunkline.events.schema import OWN_KINDS, Flag
from trunkline.events.watching import Wanted
from trunkline.hooks import DROP, STOP, ClientInfo, Deny
from trunkline.hooks.points import POINTS
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason


async def test_every_point_can_be_recorded(tmp_path: Path) -> None:
    kinds = [point.name for point in POINTS]
    async with recording(tmp_path, {"kinds": kinds}, session={"max_inflight": 1, "max_queue_length": 1}) as here:
        here.broker.hooks.add("message.publish", lambda client, message: DROP if message.topic == "drop" else None)
        client = await here.stay("a")
        await client.subscribe(("#", 1))
        publisher = await here.client("b")
        for topic in ("a/1", "a/2", "a/3", "a/4", "drop"):
            await publisher.publish(topic, b"x", qos=1)
        await client.take_publish("a/1", b"x", qos=1)
        await client.take_publish("a/4", b"x", qos=1)  # the queue holds one, and that is the last
        await client.send(raw.unsubscribe(7, "#"))
        await client.expect_type(raw.UNSUBACK)
        await (await here.stay("a")).ping()
        await (await here.client("a")).ping()
        here.admin.alarms.activate("hot", "too hot")
        here.admin.alarms.deactivate("hot")
    seen = {row["kind"] for row in recorded(tmp_path)}
    never = {"client.enhanced_authenticate", "client.read_filter", "session.terminated"}
    assert {point.name for point in POINTS} - seen <= never
    assert seen <= {point.name for point in POINTS} | {kind.name for kind in OWN_KINDS}


async def test_what_others_make_of_a_message_is_recorded_with_its_id_time_and_publisher(tmp_path: Path) -> None:
    constant = Message("b", b"constant", 1)

    async with recording(tmp_path, {"kinds": ["message.*"]}) as here:
        here.broker.hooks.add("message.publish", lambda client, message: constant)
        here.broker.hooks.add("message.deliver", lambda client, message: Message("c", b"delivered", message.qos))
        here.broker.hooks.add("message.delivered", lambda client, message: STOP)
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("b", 1))
        for _ in range(2):
            await client.publish("a", b"x", qos=1)
            await watcher.take_publish("c", b"delivered", qos=1)
    rows = [row for row in recorded(tmp_path) if "topic" in row]
    assert Counter((row["kind"], row["topic"]) for row in rows) == {
        ("message.publish", "b"): 2,
        ("message.routed", "b"): 2,
        ("message.deliver", "c"): 2,
        ("message.delivered", "c"): 2,
        ("message.acked", "c"): 2,
    }
    assert len({row["guid"] for row in rows}) == 2
    assert {row["publisher"] for row in rows} == {"a"}
    assert max(row["latency_us"] for row in rows) < 60_000_000
    assert len({row["time"].year for row in rows}) == 1


async def test_denials_say_what_was_denied(tmp_path: Path) -> None:
    def authenticate(client: ClientInfo, password: bytes | None) -> Deny | None:
        return Deny(Reason.BANNED, "go away") if client.client_id == "bad" else None

    def check(client: ClientInfo, action: str, topic: str, *_: object) -> Deny | None:
        return Deny() if topic.startswith("secret") else None

    async with recording(tmp_path) as here:
        here.broker.hooks.add("client.authenticate", authenticate)
        here.broker.hooks.add("client.check_acl", check)
        bad = here.wire()
        await bad.send(raw.connect("bad"))
        await bad.expect_type(raw.CONNACK)
        client = await here.client("a")
        await client.publish("secret/1", b"x", qos=1)
        await client.publish("secret/1", b"x", qos=1)
        await client.send(raw.subscribe(1, ("secret/#", 0)))
        await client.expect_type(raw.SUBACK)
    (refused,) = [row for row in recorded(tmp_path, "client.authenticated") if row["client_id"] == "bad"]
    assert (refused["reason_code"], refused["reason"]) == (Reason.BANNED, "go away")
    (connack,) = [row for row in recorded(tmp_path, "client.connack") if row["client_id"] == "bad"]
    assert connack["reason_code"] == Reason.BANNED
    decided = recorded(tmp_path, "client.acl_decided")
    assert [(row["action"], row["topic"], row.get("flags", 0) & Flag.ALLOWED) for row in decided] == [
        ("publish", "secret/1", 0),
        ("subscribe", "secret/#", 0),
    ]
    dropped = recorded(tmp_path, "message.dropped")
    assert [(row["topic"], row["reason"]) for row in dropped] == [("secret/1", "not_authorized")] * 2


async def test_topics_clients_and_samples(tmp_path: Path) -> None:
    settings = {"topics": ["a/#"], "clients": ["dev-*"], "kinds": ["message.*", "client.connected"]}
    async with recording(tmp_path, settings) as here:
        device, other, watcher = [await here.client(name) for name in ("dev-1", "other", "watcher")]
        await watcher.subscribe(("#", 0))
        for client in (device, other):
            for topic in ("a/1", "b/1", "$SYS/x"):
                await client.publish(topic, b"x")
            await client.ping()
    rows = recorded(tmp_path)
    assert {row["client_id"] for row in rows if "client_id" in row} == {"dev-1"}
    assert {row["topic"] for row in rows if row["kind"].startswith("message.")} == {"a/1"}


def test_long_names_are_known_but_not_remembered() -> None:
    wanted = Wanted(["a/#"], ["dev-*"], 1)
    for number in range(25_000):
        assert wanted.topic(f"a/{number}")
        assert wanted.client(f"dev-{number}")
    for number in range(100):
        assert wanted.topic(f"a/{number}" + "x" * 60_000)
        assert not wanted.client(f"{number}" + "x" * 60_000)
    for names in (wanted.known_topics, wanted._known_clients):
        assert sum(map(len, names)) < 200_000


async def test_of_a_sample_all_or_nothing_is_recorded(tmp_path: Path) -> None:
    async with recording(tmp_path, {"one_in": 4, "kinds": ["message.publish", "message.delivered"]}) as here:
        client, watcher = await here.client("a"), await here.client("w")
        await watcher.subscribe(("#", 0))
        for number in range(50):
            await client.send(*[raw.publish("t", b"%d" % number) for _ in range(40)])
            await client.ping()
    rows = recorded(tmp_path, "message.publish", "message.delivered")
    fates = Counter(row["guid"] for row in rows)
    assert set(fates.values()) == {2}
    assert 250 < len(fates) < 1000, "about 500 of 2000"
    assert {row["weight"] for row in rows} == {4}


async def test_publications_stay_together_and_are_recorded_message_by_message(tmp_path: Path) -> None:
    async with recording(tmp_path) as here:
        assert not here.broker.hooks.single
        client, watcher = await here.client("a"), await here.client("w", version=4)
        await watcher.subscribe(("#", 1))
        await client.publish("t", b"-1", qos=1)
        await watcher.take_publish("t", b"-1", qos=1)
        packets = [raw.publish("t", b"%04d" % number, qos=1, packet_id=number + 1) for number in range(100)]
        await client.send(*packets)
        for number in range(32):  # as many as its window holds
            await watcher.take_publish("t", b"%04d" % number, qos=1)
    published = recorded(tmp_path, "message.publish")
    assert [row["packet_id"] for row in published[1:]] == list(range(1, 101))
    assert [row["guid"] for row in published] == sorted({row["guid"] for row in published})
    assert Counter(row["kind"] for row in recorded(tmp_path))["message.routed"] == 101
    delivered = recorded(tmp_path, "message.delivered")
    assert [row["guid"] for row in delivered] == [row["guid"] for row in published][: len(delivered)]
    assert len(delivered) > 32
