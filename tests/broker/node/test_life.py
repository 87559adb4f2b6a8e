"""All parts of the broker, started and stopped."""

import logging
from typing import Any, cast

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.actors.probes import tasks_under
from tests.broker.inside import inside
from tests.broker.room import room
from tests.conformance import raw
from tests.conformance.raw import Will
from tests.wire import Wire, connect
from trunkline import testing
from trunkline.actors import scheduler as run_queue
from trunkline.broker.net.poller import Poller
from trunkline.broker.node.life import NodeFailed
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import from_mapping


async def test_clients_are_told_and_wills_reach_those_who_are_still_there() -> None:
    async with testing.broker() as b:
        watcher = await Wire.open(b.host, b.port)
        await watcher.connect("w")
        await watcher.subscribe(("will/#", 0))
        old = Wire(b.connect(), version=4)
        await old.connect("old", will=Will("will/old", b"gone"))
        delayed = Wire(b.connect())
        will = Will("will/delayed", b"gone", properties=raw.will_delay(1000))
        await delayed.connect("delayed", will=will, properties=raw.session_expiry(2000))
    topics = {(await watcher.expect_type(raw.PUBLISH)).topic for _ in range(2)}
    assert topics == {"will/old", "will/delayed"}
    await watcher.expect_disconnect(0x8B)
    await delayed.expect_disconnect(0x8B)
    await old.expect_close()
    for wire in (watcher, old, delayed):
        await wire.abort()


async def test_a_client_that_never_closes_delays_the_end_by_the_grace_alone(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    async with open_node(from_mapping({"listeners": [], "mqtt": {"linger": 100}}), grace=3.0) as node:
        wire = Wire(connect(node))
        await wire.connect("stubborn")
    assert trio.current_time() - began == pytest.approx(3.0, abs=0.1)


async def test_who_has_not_been_admitted_is_not_waited_for(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    async with open_node(from_mapping({"listeners": []}), grace=3.0) as node:
        connect(node)
        await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() == began


def said_of(caplog: pytest.LogCaptureFixture, client_id: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if getattr(record, "client", None) == client_id]


async def test_the_log_says_who_comes_and_goes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "trunkline"):
        async with room() as here:
            client = await here.client("mary", username="m", password="secret")
            await client.disconnect()
            lost = await here.client("john")
            await lost.abort()
            rude = await here.client("jane")
            await rude.disconnect(0x97)
            denied = here.wire()
            await denied.send(raw.connect("x" * 300))
            await denied.rest()
    connected = "connected from this process by in-process, MQTT 5.0"
    assert said_of(caplog, "mary") == [connected, "disconnected: the client sent DISCONNECT"]
    assert said_of(caplog, "john") == [connected, "disconnected: the client closed the connection without a DISCONNECT"]
    assert said_of(caplog, "jane") == [connected, "disconnected: the client sent DISCONNECT (quota_exceeded)"]
    assert "refused the connection from this process" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("clean", [False, True], ids=["taken-over", "discarded"])
async def test_the_log_names_both_connections_where_one_takes_the_place_of_the_other(
    caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    with caplog.at_level(logging.INFO, "trunkline"):
        async with testing.broker() as b:
            first, second = [await Wire.open(b.host, b.port) for _ in range(2)]
            here, there = [f"127.0.0.1:{cast('Any', wire.stream).socket.getsockname()[1]}" for wire in (first, second)]
            await first.connect("mary", clean=False, properties=raw.session_expiry(100))
            await second.connect("mary", clean=clean)
            farewell = await first.expect_disconnect(0x8E)
            await first.abort()
            await second.disconnect()
            await second.abort()
    what = "discarded" if clean else "another connection has this client id"
    where = f"the new connection is from {there}, this one was from {here}"
    left = next(record for record in caplog.records if record.getMessage().startswith("disconnected:"))
    assert left.getMessage() == f"disconnected: {what}: {where} (session_taken_over)"
    assert (vars(left)["peer"], vars(left)["reason"]) == (here, "session_taken_over")
    assert farewell is not None
    assert there.encode() not in farewell.data


async def test_a_refusal_names_who_it_was(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "trunkline"):
        async with room(auth={"allow_anonymous": False}) as here:
            denied = here.wire()
            await denied.send(raw.connect("c", username="mallory", password="secret"))
            await denied.rest()
            odd = here.wire()
            await odd.send(b"GET / HTTP/1.1\r\n\r\n")
            await odd.rest()
    refused, unreadable = [record for record in caplog.records if record.getMessage().startswith("refused")]
    fields = {name: vars(refused)[name] for name in ("client", "username", "peer", "listener", "reason")}
    assert fields == {
        "client": "c",
        "username": "mallory",
        "peer": "this process",
        "listener": "in-process",
        "reason": "not_authorized",
    }
    assert (vars(unreadable)["client"], vars(unreadable)["peer"]) == (None, "this process")
    assert "secret" not in caplog.text


async def crash_pubsub_again_and_again() -> None:
    async with testing.broker() as b:
        pubsub = inside(b.node).services.pubsub
        while True:
            pubsub._writer.ref.cast("no such message")  # type: ignore[arg-type,union-attr]  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess, reportArgumentType]
            await trio.lowlevel.checkpoint()


async def test_a_part_that_cannot_be_kept_running_ends_the_node(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(NodeFailed, match="node gave up: routes ended too often"):
        await crash_pubsub_again_and_again()
    assert caplog.messages[-1].startswith("the supervisor has failed, and the node ends: node gave up: routes")


async def test_the_number_of_tasks_does_not_grow_with_the_clients() -> None:
    async with testing.broker(sys={"interval": 10}) as b:
        here = trio.lowlevel.current_task()
        tasks = tasks_under(here)
        wires = [await Wire.open(b.host, b.port) for _ in range(50)]
        for number, wire in enumerate(wires):
            await wire.connect(f"client {number}")
        assert len(b.clients) == 50
        assert tasks_under(here) == tasks
        for wire in wires:
            await wire.abort()


@pytest.mark.parametrize(
    ("target", "name", "words"),
    [
        (Poller, "_keep_pace", "the poller has failed: a fault"),
        (run_queue, "wait_task_rescheduled", "the run queue has failed: a fault"),
    ],
)
async def test_a_fault_in_the_heart_ends_the_node_by_name(
    target: Any, name: str, words: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What belongs to one client does not get there, see `tests/attacks/test_injected_crashes.py`."""

    def fails(*_: object) -> None:
        raise ValueError("a fault")

    async def break_its_heart() -> None:
        async with testing.broker() as b, await Wire.open(b.host, b.port) as wire:
            with monkeypatch.context() as patch:
                patch.setattr(target, name, fails)
                inside(b.node).scheduler.call_at(trio.current_time(), inside(b.node).metrics.snapshot)
                await wire.send(raw.connect("a"))
                await trio.sleep_forever()

    with trio.fail_after(120), pytest.raises(NodeFailed, match=words):
        await break_its_heart()
    assert f"{words.partition(':')[0]}, and the node ends: a fault" in caplog.text
