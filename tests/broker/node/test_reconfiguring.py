"""Settings of a broker that runs: what shows that they are applied."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.reconfigured import other
from tests.broker.room import Room, room
from tests.conformance import raw
from tests.hooks.scram_client import ScramClient
from tests.wire import Wire
from trunkline.config.errors import SecurityError
from trunkline.config.key_path import Keys
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import Deny
from trunkline.hooks.passwords import hash_password
from trunkline.hooks.scram import set_scram

SCRAM: Final = raw.authentication_method("SCRAM-SHA-256") + raw.authentication_data(
    ScramClient("sam", "hidden").first()
)
IN_ZONE: Final = {"url": "tcp://127.0.0.1:0", "name": "one", "zone": "z"}


class Change(NamedTuple):
    value: Any
    look: Callable[[Room], Awaitable[object]]
    before: object
    after: object
    #: Other settings, before and after.
    besides: Mapping[str, Any] = {}


async def answer(here: Room, packet: bytes) -> raw.Received:
    """What a broker says first to a connection that begins with this."""
    async with here.wire() as wire:
        await wire.send(packet)
        return await wire.receive()


def connecting(client_id: str = "look", **settings: Any) -> Callable[[Room], Awaitable[object]]:
    async def look(here: Room) -> object:
        packet = await answer(here, raw.connect(client_id, **settings))
        return packet.reason if packet.type == raw.CONNACK else packet.type

    return look


def told(name: int) -> Callable[[Room], Awaitable[object]]:
    async def look(here: Room) -> object:
        return (await answer(here, raw.connect("look"))).get(name)

    return look


def runs(name: str) -> Callable[[Room], Awaitable[object]]:
    async def look(here: Room) -> object:
        return name in here.node.supervisors.root

    return look


async def subscribing(here: Room) -> object:
    async with here.wire() as wire:
        await wire.connect("look")
        return await wire.subscribe(("t", 0))


def publishing(topic: str) -> Callable[[Room], Awaitable[object]]:
    async def look(here: Room) -> object:
        async with here.wire() as wire:
            await wire.connect("look")
            await wire.send(raw.publish(topic, b"x", qos=1, packet_id=1))
            packet = await wire.receive()
            return packet.type, packet.reason

    return look


async def waiting(here: Room) -> object:
    """How many of one QoS 0 message wait for a client that is away."""
    client = await here.client("away", properties=raw.session_expiry(1000))
    await client.subscribe(("w", 0))
    await client.abort()
    await wait_all_tasks_blocked()
    before = here.session("away").session.waiting[0]
    here.broker.publish("w", b"x")
    await wait_all_tasks_blocked()
    return here.session("away").session.waiting[0] - before


async def retaining(here: Room) -> object:
    async with here.wire() as wire:
        await wire.connect("look")
        answer = await wire.publish("r", b"x", qos=1, retain=True)
        assert answer is not None
        found = await wire.subscribe(("r", 0)) and here.node.retained.get("r", trio.current_time())
        here.node.retained.delete("r")
        return found is not None


async def retained_of_a_publisher_without_rights(here: Room) -> object:
    denied = set[str]()

    def rules(client: ClientInfo, action: str, topic: str, qos: int, retain: bool) -> Deny | None:
        return Deny() if action == "publish" and client.client_id in denied else None

    here.node.hooks.add("client.check_acl", rules)
    publisher, reader = await here.client("publisher"), await here.client("reader")
    await publisher.publish("r", b"x", qos=1, retain=True)
    denied.add("publisher")
    await reader.send(raw.subscribe(1, ("r", 0)), raw.PINGREQ)
    kinds = {(await reader.receive()).type for _ in range(2)}
    here.node.hooks.remove("client.check_acl", rules)
    return raw.PUBLISH in kinds


async def shares(here: Room) -> object:
    """How two members of a group share four messages of one topic."""
    count = Counter[str]()
    async with here.wire() as one, here.wire() as two:
        for name, wire in (("one", one), ("two", two)):
            await wire.connect(name)
            await wire.subscribe(("$share/g/s", 0))
        for _ in range(4):
            here.broker.publish("s", b"x")
        for name, wire in (("one", one), ("two", two)):
            await wire.send(raw.PINGREQ)
            while (await wire.receive()).type == raw.PUBLISH:
                count[name] += 1
    return max(count.values())


async def tracing(here: Room) -> object:
    trace = here.node.trace
    return (sorted(trace.clients), trace.topics) if trace.on else None


async def verifying(here: Room) -> object:
    """Threads for passwords."""
    queue = here.node.security._queue
    assert queue.turns._free == queue._threads.total_tokens
    return queue._threads.total_tokens


async def refusing(here: Room) -> object:
    """Whether messages over a rate are refused."""
    async with here.wire() as wire:
        await wire.connect("look")
        channel = here.session("look").channel
        assert channel is not None
        return channel.quota is not None


async def first_listeners_qos(here: Room) -> object:
    async with await Wire.open(*here.node.listeners[0].address[:2]) as wire:
        return (await wire.connect("look")).get(0x24)


async def labels(here: Room) -> object:
    return [listener.settings.label for listener in here.node.listeners]


#: Of each key that cannot have a value which is like no other, and of tasks that come and go.
CHANGES: Final[dict[Keys, Change]] = {
    ("node", "watchdog"): Change(5, runs("watchdog"), False, True),
    ("listeners",): Change([{"url": "tcp://127.0.0.1:0", "name": "one"}], labels, [], ["one"]),
    ("mqtt", "max_qos"): Change(1, told(0x24), None, 1),
    ("mqtt", "retain_available"): Change(False, told(0x25), None, 0),
    ("mqtt", "wildcard_subscriptions"): Change(False, told(0x28), None, 0),
    ("mqtt", "shared_subscriptions"): Change(False, told(0x2A), None, 0),
    ("mqtt", "allow_empty_client_id"): Change(False, connecting(""), 0, 0x85),
    ("mqtt", "packet_timeout"): Change(5, runs("slow_senders"), False, True),
    ("mqtt", "subscribe_denied"): Change(
        "grant", subscribing, [0x87], [0], {"acl": {"file": "rules", "no_match": "deny"}}
    ),
    ("mqtt", "strict_utf8"): Change(False, publishing("a\x01"), (raw.DISCONNECT, 0x81), (raw.PUBACK, 0x10)),
    ("session", "store_qos0"): Change(False, waiting, 1, 0),
    ("retained", "enabled"): Change(False, retaining, True, False),
    ("retained", "check_retain_source"): Change(True, retained_of_a_publisher_without_rights, True, False),
    ("shared", "strategy"): Change("hash_topic", shares, 2, 4),
    ("shared", "strategies"): Change({"g": "hash_topic"}, shares, 2, 4),
    ("auth", "allow_anonymous"): Change(False, connecting(), 0, 0x87),
    ("auth", "password_file"): Change("users", connecting(username="ann", password="wrong"), 0, 0x86),
    ("auth", "client_id_file"): Change("users", connecting("ann"), 0, 0x86),
    ("auth", "scram_file"): Change("scram", connecting(properties=SCRAM), 0x8C, raw.AUTH),
    ("passwords", "threads"): Change(5, verifying, 2, 5),
    ("acl", "file"): Change("rules", publishing("shut"), (raw.PUBACK, 0x10), (raw.PUBACK, 0x87)),
    ("acl", "deny_action"): Change(
        "disconnect",
        publishing("t"),
        (raw.PUBACK, 0x87),
        (raw.DISCONNECT, 0x87),
        {"acl": {"file": "rules", "no_match": "deny"}},
    ),
    ("acl", "no_match"): Change(
        "deny", publishing("t"), (raw.PUBACK, 0x10), (raw.PUBACK, 0x87), {"acl": {"file": "rules"}}
    ),
    ("sys", "interval"): Change(5, runs("sys"), False, True),
    ("trace", "clients"): Change(["a"], tracing, None, (["a"], ())),
    ("trace", "topics"): Change(["t"], tracing, None, ([], ("t",))),
    ("rate", "over"): Change("refuse", refusing, False, True, {"rate": {"client_messages": "9/s"}}),
    ("overload", "interval"): Change(5, runs("overload"), False, True),
    ("zones",): Change(
        {"z": {"max_qos": 0}}, first_listeners_qos, 1, 0, {"zones": {"z": {"max_qos": 1}}, "listeners": [IN_ZONE]}
    ),
}


def files(folder: Path) -> dict[str, str]:
    """By the name that stands for one in `CHANGES`."""
    rules = '[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["shut"]\n'
    texts = {"users": f"ann:{hash_password(b'secret')}\n", "scram": set_scram("", "sam", "hidden"), "rules": rules}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return {name: str(folder / name) for name in texts}


@pytest.mark.parametrize("path", CHANGES, ids=".".join)
async def test_it_is_applied_and_taken_back(path: Keys, tmp_path: Path) -> None:
    change, known = CHANGES[path], files(tmp_path)
    section, *rest = path
    before = {"listeners": [], **change.besides}
    after = {**before, section: {**before.get(section, {}), rest[0]: change.value} if rest else change.value}
    for table in (before, after):
        for name in ("auth", "acl"):
            if name in table:
                table[name] = {key: known.get(value, value) for key, value in table[name].items()}
    async with room(**before) as here:
        for table, expected in ((before, change.before), (after, change.after), (before, change.before)):
            assert await here.admin.reconfiguring.apply(other(table)) == []
            await wait_all_tasks_blocked()
            assert await change.look(here) == expected


async def test_new_connections_have_the_limits() -> None:
    async with room() as here:
        before = await here.client("before")
        assert await here.admin.reconfiguring.apply(other({"mqtt": {"max_qos": 1, "max_packet_size": 1000}})) == []
        after = here.wire()
        await after.send(raw.connect("after"))
        connack = await after.expect_type(raw.CONNACK)
        assert (connack.get(0x24), connack.get(0x27)) == (1, 1000)
        answer = await before.publish("t", b"x" * 2000, qos=2)  # its CONNACK allows it
        assert answer is not None
        assert answer.reason in (0, 0x10)


async def test_sessions_that_are_there_have_the_limits() -> None:
    async with room() as here:
        client, away = await here.client("here"), await here.stay("away")
        await away.disconnect()
        await here.admin.reconfiguring.apply(
            other({"session": {"max_inflight": 2, "max_queue_length": 3, "max_subscriptions": 1}})
        )
        await wait_all_tasks_blocked()
        session = here.session("here").session
        assert await client.subscribe(("t", 1)) == [1]
        assert await client.subscribe(("u", 1)) == [0x97]
        for number in range(10):
            here.broker.publish("t", b"%d" % number, qos=1)
        await wait_all_tasks_blocked()
        assert (len(session.inflight), len(session.queue)) == (2, 3)
        again = await here.stay("away")
        await again.subscribe(("v", 1))
        for number in range(10):
            here.broker.publish("v", b"%d" % number, qos=1)
        await wait_all_tasks_blocked()
        assert len(here.session("away").session.inflight) == 2
        await here.admin.reconfiguring.apply(other({}))
        await wait_all_tasks_blocked()
        await client.acknowledge(await client.expect_type(raw.PUBLISH))
        await wait_all_tasks_blocked()
        assert len(session.inflight) == 4  # there is room for all that waited


async def test_a_3x_client_that_stays_is_sent_messages_again_from_now_on(autojump_clock: MockClock) -> None:
    async with room() as here:
        client = await here.client("a", version=4)
        await client.subscribe(("t", 1))
        here.broker.publish("t", b"x", qos=1)
        await client.expect_publish("t", b"x", qos=1)
        await trio.sleep(100)
        await client.ping()
        await here.admin.reconfiguring.apply(other({"session": {"retry_interval": 5}}))
        again = await client.expect_publish("t", b"x", qos=1)
        assert again.dup
        await here.admin.reconfiguring.apply(other({}))
        await wait_all_tasks_blocked()
        await trio.sleep(100)
        await client.ping()


async def test_a_pubrel_is_waited_for_as_long_as_the_setting_says_now(autojump_clock: MockClock) -> None:
    async with room(session={"await_rel_timeout": 1000}) as here:
        client = await here.client("a")
        await client.send(raw.publish("t", b"x", qos=2, packet_id=1))
        await client.expect_type(raw.PUBREC)
        await here.admin.reconfiguring.apply(other({"session": {"await_rel_timeout": 10}}))
        await trio.sleep(11)
        await client.ping()
        assert len(here.session("a").session.awaiting_rel) == 0


async def test_backlogs_are_as_short_as_the_setting_says_now(tmp_path: Path) -> None:
    stored = {"store": {"path": str(tmp_path / "store"), "durability": "os"}}
    async with room(**stored) as here:
        client = await here.stay("away")
        await client.subscribe(("t", 1))
        await client.disconnect()
        for number in range(50):
            here.broker.publish("t", b"%d" % number, qos=1)
        await here.node.plugin_stores.committed()
        await here.admin.reconfiguring.apply(other({**stored, "session": {"max_queue_length": 5}}))
        with trio.fail_after(60):
            while here.session("away").session.waiting[0] > 10:  # twice the limit, until the client comes
                await trio.lowlevel.checkpoint()


async def test_a_subscriber_holds_its_publishers_as_long_as_the_setting_says_now() -> None:
    async with room(session={"backpressure": 0}) as here:
        await here.client("slow")
        pressure = here.session("slow")._outbound._pressure
        assert pressure._left == 0
        await here.admin.reconfiguring.apply(other({"session": {"backpressure": 3}}))
        await wait_all_tasks_blocked()
        assert pressure._left == 3


async def test_rates() -> None:
    async with room() as here:
        await here.client("a")
        await here.admin.reconfiguring.apply(other({"rate": {"client_connections": "1/m"}}))
        for expected in (0, 0x9F):
            wire = here.wire()
            await wire.send(raw.connect("a"))
            assert (await wire.expect_type(raw.CONNACK)).reason == expected


async def test_limits_of_the_node() -> None:
    async with room() as here:
        await here.client("a")
        await here.admin.reconfiguring.apply(other({"limits": {"max_sessions": 1}}))
        wire = here.wire()
        await wire.send(raw.connect("b"))
        assert (await wire.expect_type(raw.CONNACK)).reason == 0x97


async def connects(here: Room, port: int, **settings: Any) -> int | None:
    """The reason of the CONNACK; None if there is nobody."""
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        return None
    wire = Wire(stream, patience=60)
    try:
        await wire.send(raw.connect("c", **settings))
        return (await wire.expect_type(raw.CONNACK)).reason
    except (AssertionError, trio.BrokenResourceError):
        return None
    finally:
        await wire.abort()


def ports(here: Room) -> dict[str, int]:
    return {listener.settings.label: listener.address[1] for listener in here.node.listeners}


async def test_listeners_come_go_and_move() -> None:
    one, two = {"url": "tcp://127.0.0.1:0", "name": "one"}, {"url": "tcp://127.0.0.1:0", "name": "two"}
    async with room(listeners=[one]) as here:
        first = ports(here)
        assert await connects(here, first["one"]) == 0
        assert await here.admin.reconfiguring.apply(other({"listeners": [{**one, "versions": ["3.1.1"]}, two]})) == []
        assert ports(here)["one"] == first["one"]  # its socket stayed open
        assert await connects(here, first["one"]) == 0x84
        assert await connects(here, ports(here)["two"]) == 0
        gone = ports(here)["two"]
        taken = f"tcp://127.0.0.1:{first['one']}"
        problems = await here.admin.reconfiguring.apply(other({"listeners": [one, {"url": taken, "name": "three"}]}))
        assert len(problems) == 1
        assert problems[0].startswith(f"cannot listen on {taken}")
        assert (await connects(here, first["one"]), await connects(here, gone)) == (0, None)
        assert len(await here.admin.reconfiguring.apply(here.node.config)) == 1  # it is tried again
        moved = {**one, "url": "tcp://localhost:0"}
        assert await here.admin.reconfiguring.apply(other({"listeners": [moved]})) == []
        assert await connects(here, first["one"]) is None
        assert await connects(here, ports(here)["one"]) == 0
        here.node.listeners.remove(here.node.listeners[0])
        assert await here.admin.reconfiguring.apply(here.node.config) == []
        assert ports(here) == {}  # an operator's word holds


async def test_a_listener_that_cannot_move_stays() -> None:
    one, two = {"url": "tcp://127.0.0.1:0", "name": "one"}, {"url": "tcp://127.0.0.1:0", "name": "two"}
    async with room(listeners=[one, two]) as here:
        before = ports(here)
        moved = {**one, "url": f"tcp://127.0.0.1:{before['two']}"}
        assert len(await here.admin.reconfiguring.apply(other({"listeners": [moved, two]}))) == 1
        assert await connects(here, ports(here)["one"]) == 0
        assert await connects(here, before["two"]) == 0


async def test_zones() -> None:
    one = {"url": "tcp://127.0.0.1:0", "name": "one"}
    async with room(listeners=[one]) as here:
        await here.admin.reconfiguring.apply(
            other({"zones": {"small": {"max_qos": 0}}, "listeners": [{**one, "zone": "small"}]})
        )
        wire = here.wire()
        await wire.connect("in process")
        (listener,) = here.node.listeners
        assert listener.settings.zone == "small"
        outside = Wire(await trio.open_tcp_stream("127.0.0.1", listener.address[1]), patience=60)
        await outside.send(raw.connect("c"))
        assert (await outside.expect_type(raw.CONNACK)).get(0x24) == 0
        await outside.abort()


async def test_logins(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(f"ann:{hash_password(b'secret')}\n")
    one = {"url": "tcp://127.0.0.1:0", "name": "one"}
    async with room(listeners=[one]) as here:
        port = ports(here)["one"]
        assert await connects(here, port) == 0
        await here.admin.reconfiguring.apply(other({"listeners": [one], "auth": {"password_file": str(users)}}))
        assert await connects(here, port) == 0x87
        assert await connects(here, port, username="ann", password="secret") == 0


async def test_access_rules(tmp_path: Path) -> None:
    rules = tmp_path / "acl.toml"
    rules.write_text('[[rule]]\npermit = "deny"\naction = "publish"\ntopics = ["shut"]\n')
    async with room() as here:
        client = await here.client("a")
        for table, topic, reason in (
            ({"file": str(rules)}, "shut", 0x87),
            ({"file": str(rules)}, "other", 0x10),
            ({"file": str(rules), "no_match": "deny"}, "other", 0x87),
        ):
            await here.admin.reconfiguring.apply(other({"acl": table}))
            answer = await client.publish(topic, qos=1)
            assert answer is not None
            assert answer.reason == reason


async def test_flapping() -> None:
    async with room() as here:
        await here.admin.reconfiguring.apply(other({"flapping": {"max_takeovers": 1}}))
        for _ in range(2):
            await here.client("a")
        wire = here.wire()
        await wire.send(raw.connect("a"))
        assert (await wire.expect_type(raw.CONNACK)).reason != 0


async def test_files_that_are_wrong_change_nothing(tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("nonsense\n")
    async with room() as here:
        before = here.node.config
        with pytest.raises(SecurityError):
            await here.admin.reconfiguring.apply(other({"auth": {"password_file": str(users)}, "mqtt": {"max_qos": 0}}))
        assert here.node.config is before
        connack = await here.wire().connect("a")
        assert connack.get(0x24) is None
