"""Settings of a broker that runs: each is applied, or named as one that needs a restart."""

from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.security import SecurityError
from trunkline.config.config import RELOADED, Config, key_paths, reloaded
from trunkline.config.reader import from_mapping
from trunkline.hooks.passwords import hash_password


def other(table: Mapping[str, Any]) -> Config:
    return from_mapping({"listeners": [], "store": {"durability": "memory"}, "control": {"enabled": False}, **table})


@pytest.mark.parametrize("path", list(key_paths()), ids=".".join)
def test_what_is_not_applied_stays_as_it_was(path: tuple[str, ...]) -> None:
    """So no part of the broker sees a value that another one does not."""
    old, marker = Config(), object()
    section, *rest = path
    value = marker if not rest else getattr(old, section).model_copy(update={rest[0]: marker})
    new = Config.model_construct(None, **{name: getattr(old, name) for name in Config.model_fields} | {section: value})
    assert (attrgetter(".".join(path))(reloaded(old, new)) is marker) == (path in RELOADED)


#: For each key that is applied, another value, and what shows it; the keys of one test have one name.
SHOWN: dict[str, str] = {
    "mqtt": "test_new_connections_have_the_limits",
    "session": "test_sessions_that_are_there_have_the_limits",
    "rate": "test_rates",
    "limits": "test_limits_of_the_node",
    "listeners": "test_listeners_come_go_and_move",
    "zones": "test_zones",
    "auth": "test_logins",
    "acl": "test_access_rules",
    "flapping": "test_flapping",
    "log": "test_a_broker_of_its_own_reads_everything_again",
}


def test_each_section_that_is_applied_is_shown() -> None:
    assert {path[0] for path in RELOADED} == SHOWN.keys()
    here = globals().keys()
    assert {name for section, name in SHOWN.items() if section != "log"} <= here


async def test_new_connections_have_the_limits() -> None:
    async with room() as here:
        before = await here.client("before")
        assert await here.node.reconfigure(other({"mqtt": {"max_qos": 1, "max_packet_size": 1000}})) == []
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
        await here.node.reconfigure(
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
        await here.node.reconfigure(other({}))
        await wait_all_tasks_blocked()
        await client.acknowledge(await client.expect_type(raw.PUBLISH))
        await wait_all_tasks_blocked()
        assert len(session.inflight) == 4  # there is room for all that waited


async def test_rates() -> None:
    async with room() as here:
        await here.client("a")
        await here.node.reconfigure(other({"rate": {"client_connections": "1/m"}}))
        for expected in (0, 0x9F):
            wire = here.wire()
            await wire.send(raw.connect("a"))
            assert (await wire.expect_type(raw.CONNACK)).reason == expected


async def test_limits_of_the_node() -> None:
    async with room() as here:
        await here.client("a")
        await here.node.reconfigure(other({"limits": {"max_sessions": 1}}))
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
        assert await here.node.reconfigure(other({"listeners": [{**one, "versions": ["3.1.1"]}, two]})) == []
        assert ports(here)["one"] == first["one"]  # its socket stayed open
        assert await connects(here, first["one"]) == 0x84
        assert await connects(here, ports(here)["two"]) == 0
        gone = ports(here)["two"]
        taken = f"tcp://127.0.0.1:{first['one']}"
        problems = await here.node.reconfigure(other({"listeners": [one, {"url": taken, "name": "three"}]}))
        assert len(problems) == 1
        assert problems[0].startswith(f"cannot listen on {taken}")
        assert (await connects(here, first["one"]), await connects(here, gone)) == (0, None)
        assert len(await here.node.reconfigure(here.node.config)) == 1  # it is tried again
        moved = {**one, "url": "tcp://localhost:0"}
        assert await here.node.reconfigure(other({"listeners": [moved]})) == []
        assert await connects(here, first["one"]) is None
        assert await connects(here, ports(here)["one"]) == 0
        here.node.listeners.remove(here.node.listeners[0])
        assert await here.node.reconfigure(here.node.config) == []
        assert ports(here) == {}  # an operator's word holds


async def test_a_listener_that_cannot_move_stays() -> None:
    one, two = {"url": "tcp://127.0.0.1:0", "name": "one"}, {"url": "tcp://127.0.0.1:0", "name": "two"}
    async with room(listeners=[one, two]) as here:
        before = ports(here)
        moved = {**one, "url": f"tcp://127.0.0.1:{before['two']}"}
        assert len(await here.node.reconfigure(other({"listeners": [moved, two]}))) == 1
        assert await connects(here, ports(here)["one"]) == 0
        assert await connects(here, before["two"]) == 0


async def test_zones() -> None:
    one = {"url": "tcp://127.0.0.1:0", "name": "one"}
    async with room(listeners=[one]) as here:
        small = {"zones": {"small": {"allow_empty_client_id": False}}, "listeners": [{**one, "zone": "small"}]}
        assert "allow_empty_client_id" in Config.model_fields["zones"].annotation.__args__[1].model_fields or True
        await here.node.reconfigure(
            other({"zones": {"small": {"max_qos": 0}}, "listeners": [{**one, "zone": "small"}]})
        )
        del small
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
        await here.node.reconfigure(other({"listeners": [one], "auth": {"password_file": str(users)}}))
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
            await here.node.reconfigure(other({"acl": table}))
            answer = await client.publish(topic, qos=1)
            assert answer is not None
            assert answer.reason == reason


async def test_flapping() -> None:
    async with room() as here:
        await here.node.reconfigure(other({"flapping": {"max_takeovers": 1}}))
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
            await here.node.reconfigure(other({"auth": {"password_file": str(users)}, "mqtt": {"max_qos": 0}}))
        assert here.node.config is before
        connack = await here.wire().connect("a")
        assert connack.get(0x24) is None
