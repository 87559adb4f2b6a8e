"""Wills of clients whose sessions end with their connections, over the ends of brokers."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.disk import Disk, Life
from tests.broker.test_durability_by_client import by_user
from tests.broker.test_promises import everything, payloads, watching
from tests.conformance import raw
from tests.wire import Wire
from trunkline.broker.session.stored_will import WILLS, StoredWill
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny, Hooks
from trunkline.mqtt.packets import Will
from trunkline.store.engine import rows


def will(payload: bytes = b"gone", **settings: Any) -> raw.Will:
    return raw.Will("will", payload, 1, **settings)


async def come(life: Life, client_id: str, version: int = 5, **settings: Any) -> Wire:
    wire = await life.wire(version)
    await wire.connect(client_id, **settings)
    return wire


def stored(disk: Disk) -> int:
    return sum(1 for _ in rows(disk.engine, WILLS))


async def watched() -> Disk:
    """With a session that gets the wills."""
    disk = Disk()
    async with disk.broker() as life:
        await watching(life)
    return disk


@pytest.mark.parametrize(
    ("settings", "comes"),
    [
        pytest.param({"version": 4}, True, id="3.1.1, clean session"),
        pytest.param({}, True, id="5.0, no expiry interval"),
        pytest.param({"clean": False, "properties": raw.session_expiry(0)}, True, id="5.0, expiry interval 0"),
        pytest.param({"properties": raw.session_expiry(100)}, True, id="a durable session"),
        pytest.param({"username": "memory"}, False, id="a client that is not durable"),
        pytest.param({"username": "memory", "properties": raw.session_expiry(100)}, False, id="such a session"),
    ],
)
async def test_the_will_of_a_client_that_was_connected_comes_once(settings: dict[str, Any], comes: bool) -> None:
    disk = await watched()
    async with disk.broker(hooks=by_user()) as life:
        await come(life, "a", will=will(), **settings)
        life.cut()
    for _ in range(2):
        async with disk.broker() as life:
            assert payloads(await everything(life, "watcher")) == [b"gone"] * comes
            assert stored(disk) == 0


async def test_it_is_as_the_client_gave_it_and_waits_for_no_delay_as_its_session_has_ended() -> None:
    disk = Disk()
    properties = raw.will_delay(500) + raw.user_property("k", "v") + raw.message_expiry(900)
    async with disk.broker() as life:
        await come(life, "a", will=will(retain=True, properties=properties), username="somebody")
        life.cut()
    async with disk.broker() as life:
        (kept,) = [each.message for each in life.node.retained]
        assert (kept.topic, kept.payload, kept.qos, kept.retain) == ("will", b"gone", 1, True)
        assert kept.properties.get("user_property") == (("k", "v"),)
        assert "will_delay_interval" not in kept.properties
        assert kept.publisher == "a"


async def test_it_comes_before_its_client_can_say_that_it_is_back() -> None:
    disk = Disk()
    clients = [f"client {number}" for number in range(250)]
    async with disk.broker() as life:
        for client_id in clients:
            await come(life, client_id, will=raw.Will(f"state/{client_id}", b"offline", 1, retain=True))
        life.cut()
    async with disk.broker() as life:
        last = await come(life, clients[-1])
        await last.publish(f"state/{clients[-1]}", b"online", qos=1, retain=True)
        states = [each.message.payload for each in life.node.retained]
        assert sorted(states) == [b"offline"] * 249 + [b"online"]


@pytest.mark.parametrize("end", ["DISCONNECT", "lost", "taken over", "kicked", "shutdown"])
async def test_nothing_of_it_is_left_when_its_connection_has_ended(end: str) -> None:
    disk = await watched()
    async with disk.broker() as life:
        wire = await come(life, "a", will=will())
        assert stored(disk) == 1
        if end == "DISCONNECT":
            await wire.disconnect()
        elif end == "lost":
            await wire.abort()
        elif end == "taken over":
            await come(life, "a")
        elif end == "kicked":
            assert life.node.clients.kick("a")
        else:
            await life.admin.ending.disconnect_clients()
        if end != "shutdown":
            other, _ = await life.stay("other")
            await other.subscribe("x")  # its SUBACK comes behind the commit
        assert stored(disk) == 0
    async with disk.broker() as life:
        assert payloads(await everything(life, "watcher")) == ([] if end == "DISCONNECT" else [b"gone"])


async def test_access_is_asked_for_when_it_is_published(mock_clock: MockClock) -> None:
    """Also by the next process; and while the answer is awaited, it is stored."""
    answer: list[trio.Event | Allow | Deny] = [ALLOW]

    async def check(client: ClientInfo, *_: object) -> Allow | Deny:
        if isinstance(answer[0], trio.Event):
            await answer[0].wait()
            return Deny()
        await trio.lowlevel.checkpoint()
        return answer[0]

    def hooks() -> Hooks:
        made = Hooks()
        made.add("client.check_acl", check)
        return made

    disk = Disk()
    async with disk.broker(hooks=hooks()) as life:
        await watching(life)
        for client_id in ("a", "b"):
            properties = raw.session_expiry(100 * (client_id == "b"))
            wire = await come(life, client_id, will=will(client_id.encode()), properties=properties)
            answer[0] = trio.Event()
            await wire.abort()
            await wait_all_tasks_blocked()
            await (await come(life, "other", will=will(b"of another"))).disconnect()
            answer[0] = ALLOW
        assert stored(disk) == 2
        life.cut()
    answer[0] = ALLOW
    async with disk.broker(hooks=hooks()) as life:
        assert sorted(payloads(await everything(life, "watcher"))) == [b"a", b"b"]
        assert stored(disk) == 0
        await come(life, "c", will=will(b"c"))
        life.cut()
    answer[0] = Deny()
    async with disk.broker(hooks=hooks()) as life:
        await wait_all_tasks_blocked()
        answer[0] = ALLOW
        assert sorted(payloads(await everything(life, "watcher"))) == [b"a", b"b"]
        assert stored(disk) == 0


async def test_one_that_was_found_in_the_store_is_settled_until_it_ends() -> None:
    async with Disk().broker() as life:
        committer = life.node.services.committer
        assert committer is not None
        found = StoredWill(committer, b"key", ClientInfo("a"), Will("will", b"gone"), is_stored=True)
        assert found.is_settled
        found.end()
        assert not found.is_settled


async def test_the_power_fails_again_at_each_commit_that_publishes_it() -> None:
    for applied in (False, True):
        for cut_at in range(3):
            disk = await watched()
            async with disk.broker() as life:
                await come(life, "a", will=will())
                life.cut()
            async with disk.broker(cut_at, applied=applied) as life:
                await wait_all_tasks_blocked()
            async with disk.broker() as life:
                assert payloads(await everything(life, "watcher")) == [b"gone"]
                assert stored(disk) == 0
