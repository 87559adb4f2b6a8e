"""The control socket of a broker that runs: what it answers, what it puts up with, and whom it keeps waiting."""

import contextlib
import logging
import os
import re
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.management.asking import controlled, through_socket
from trunkline import __version__
from trunkline.broker.node import open_node
from trunkline.config.reader import from_mapping
from trunkline.management import control
from trunkline.management.control import ControlSocketError, open_control
from trunkline.management.control_client import ControlClient, ControlError, NoBroker
from trunkline.management.control_frames import LENGTH, PROTOCOL, frame, pack, unpack
from trunkline.management.control_place import read_port
from trunkline.management.operations.registry import OPERATIONS, Administered, operation

unix = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no Unix sockets")
TRANSPORTS = ["tcp"] if os.name == "nt" else ["unix", "tcp"]


class Raw:
    """A control connection spoken by hand."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def send(self, *contents: object) -> None:
        await self.stream.send_all(b"".join(frame(pack(content)) for content in contents))

    async def receive(self) -> dict[str, Any]:
        with trio.fail_after(120):
            (length,) = LENGTH.unpack(await self._read(LENGTH.size))
            return unpack(await self._read(length))

    async def expect_close(self) -> None:
        with trio.fail_after(120), contextlib.suppress(trio.BrokenResourceError):
            assert await self.stream.receive_some(1) == b""

    async def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = await self.stream.receive_some(count - len(parts))
            assert part, f"closed after {bytes(parts)!r}"
            parts += part
        return bytes(parts)


@asynccontextmanager
async def by_hand(folder: Path, greet: bool = True) -> AsyncIterator[Raw]:
    async with await trio.open_unix_socket(str(folder / "broker.sock")) as stream:
        opened = Raw(stream)
        if greet:
            await opened.send({"protocol": PROTOCOL})
            assert (await opened.receive())["node"] == "trunkline"
        yield opened


# One that is there


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_who_it_is_and_what_it_answers(transport: str, tmp_path: Path) -> None:
    def use(client: ControlClient) -> tuple[object, ...]:
        return client.node, client.version, client.pid, client.call("status")["node"]

    async with controlled(tmp_path, transport=transport) as here:
        assert await through_socket(tmp_path, use) == ("trunkline", __version__, os.getpid(), "trunkline")
        assert here.node.control is not None
        assert here.node.control.path == tmp_path / "broker.sock"
        if os.name != "nt":
            assert stat.S_IMODE((tmp_path / "broker.sock").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == []


async def test_a_broker_inside_another_process_has_none_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    async with room() as here:
        assert here.node.control is None
        assert os.listdir(tmp_path) == []
    async with room(control={"enabled": True}, node={"name": "plant"}):
        assert (tmp_path / "trunkline" / ("plant.port" if os.name == "nt" else "plant.sock")).exists()


async def test_a_broker_of_its_own_has_one_unless_told_not_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for enabled in (True, False):
        table = {"listeners": [], **({} if enabled else {"control": {"enabled": False}})}
        config = from_mapping(table)

        async with open_node(config, read=lambda config=config: config, open_control=open_control) as node:
            assert (node.control is not None) == enabled


@unix
async def test_two_brokers_side_by_side_and_two_of_one_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "trunkline"

    def ask(name: str) -> Any:
        with ControlClient(folder / f"{name}.sock") as client:
            return client.call("status")["node"]

    async with room(control={"enabled": True}), room(control={"enabled": True}, node={"name": "plant"}):
        for name in ("trunkline", "plant"):
            assert await trio.to_thread.run_sync(ask, name) == name
        words = rf"belongs to the broker 'plant' that runs as process {os.getpid()}"
        with pytest.raises(ControlSocketError, match=words):
            async with room(control={"path": str(folder / "plant.sock")}):
                raise AssertionError("it must not start")
        # without a path of its own the second one has a name with a number
        for table in ({}, {"control": {"enabled": True}}):
            config = from_mapping({"listeners": [], "node": {"name": "plant"}, **table})
            async with open_node(config, read=lambda config=config: config, open_control=open_control) as node:
                assert node.control is not None
                assert node.control.path == folder / "plant-2.sock"
                assert await trio.to_thread.run_sync(ask, "plant-2") == "plant"
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 2
        assert re.search(
            rf"{words}, so use `trunkline ctl --node plant-2` for this broker, or give it a node.name", warnings[0]
        )
        assert await trio.to_thread.run_sync(ask, "plant") == "plant"
    assert os.listdir(folder) == []


# Clients that do not keep to the protocol


@unix
@pytest.mark.parametrize(
    ("garbage", "text"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes; at most 4096 are allowed"),
        (b"\xff\xff\xff\xff", "a frame of 4294967295 bytes"),
        (frame(b""), "not MessagePack"),
        (frame(b"\xc1"), "not MessagePack"),
        (frame(pack([1, 2])), "a map was expected"),
        (frame(pack({"protocol": 7})), "it speaks protocol 7; this broker"),
        (frame(pack({"hello": "there"})), "it speaks protocol None"),
    ],
)
async def test_garbage_in_place_of_a_greeting(
    garbage: bytes, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with controlled(tmp_path) as here, by_hand(tmp_path, greet=False) as client:
        await client.stream.send_all(garbage)
        answer = await client.receive()
        assert answer["id"] is None
        assert text in answer["message"]
        await client.stream.send_eof()
        await client.expect_close()
        assert [text in record.message for record in caplog.records if record.name == "trunkline.control"] == [True]
        assert await through_socket(tmp_path, lambda other: other.call("status"))
        assert here.node.control is not None


@unix
@pytest.mark.parametrize(
    ("garbage", "code"),
    [
        (b"\0\0\0\5garbage", "malformed"),
        (frame(b"\x91" * 5000), "malformed"),
        (frame(pack({"id": 1})), "malformed"),
        (frame(pack({"id": None, "operation": "status"})), "malformed"),
        (frame(pack({"id": 1, "operation": "status", "arguments": [1]})), "malformed"),
        (frame(pack({"id": 1, "operation": ["status"]})), "malformed"),
        (LENGTH.pack(65_537), "too_large"),
    ],
)
async def test_garbage_in_place_of_a_request(garbage: bytes, code: str, tmp_path: Path) -> None:
    async with controlled(tmp_path, max_frame_size=65_536), by_hand(tmp_path) as client:
        await client.send({"id": "first", "operation": "log.level"})
        assert (await client.receive())["id"] == "first"
        await client.stream.send_all(garbage)
        answer = await client.receive()
        assert (answer["id"], answer["error"]) == (None, code)
        await client.stream.send_eof()
        await client.expect_close()
        assert await through_socket(tmp_path, lambda other: other.call("status"))


@unix
async def test_a_frame_that_ends_in_the_middle(tmp_path: Path) -> None:
    async with controlled(tmp_path), by_hand(tmp_path) as client:
        await client.stream.send_all(LENGTH.pack(100) + b"abc")
        await client.stream.send_eof()
        assert "in the middle of a frame" in (await client.receive())["message"]
        await client.expect_close()


@unix
async def test_whatever_comes_the_broker_goes_on(tmp_path: Path) -> None:
    random = Random(7)
    request = frame(pack({"id": 1, "operation": "clients.list", "arguments": {"limit": 3, "prefix": "a"}}))
    async with controlled(tmp_path) as here:
        for number in range(300):
            async with by_hand(tmp_path, greet=number % 2 == 0) as client:
                damaged = bytearray(request)
                for _ in range(random.randint(1, 8)):
                    damaged[random.randrange(len(damaged))] = random.randrange(256)
                garbage = random.randbytes(random.randrange(40)) if number % 3 == 0 else bytes(damaged)
                with contextlib.suppress(trio.BrokenResourceError):
                    await client.stream.send_all(garbage)
                    await client.stream.send_eof()
                    while await client.stream.receive_some():
                        pass
        assert await through_socket(tmp_path, lambda client: client.call("status"))
        assert here.node.control is not None


@unix
async def test_a_connection_that_crashes_ends_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with controlled(tmp_path):
        with monkeypatch.context() as patched:
            patched.setattr(control, "unpack", lambda packed: 1 // 0)
            with pytest.raises(NoBroker, match="is gone"):
                await through_socket(tmp_path, lambda client: client.call("status"))
        assert "a control connection crashed" in caplog.text
        assert await through_socket(tmp_path, lambda client: client.call("status"))


@unix
async def test_who_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with controlled(tmp_path, idle_timeout=0.1):
        with monkeypatch.context() as patched:
            patched.setattr(control, "GREETING_TIME", 0.05)
            async with by_hand(tmp_path, greet=False) as silent:
                assert "sent no greeting for 0.05 s" in (await silent.receive())["message"]
        async with by_hand(tmp_path) as idle:
            assert "sent nothing for 0.1 s" in (await idle.receive())["message"]
            await idle.expect_close()


@unix
async def test_no_more_connections_than_may_be(tmp_path: Path) -> None:
    async with controlled(tmp_path, max_connections=2):
        async with by_hand(tmp_path), by_hand(tmp_path) as second:
            with pytest.raises(ControlError, match="the limit of 2 control connections is reached") as caught:
                await through_socket(tmp_path, lambda client: client.call("status"))
            assert caught.value.code == "unwelcome"
            await second.send({"id": 1, "operation": "log.level"})
            assert (await second.receive())["id"] == 1
        with trio.fail_after(120):
            while True:
                try:
                    assert await through_socket(tmp_path, lambda client: client.call("status"))
                    break
                except ControlError:  # the others are about to be seen to have gone
                    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("token", ["", "wrong", None, 7, "ü"])
async def test_a_port_is_for_those_who_know_the_token(token: object, tmp_path: Path) -> None:
    async with controlled(tmp_path, transport="tcp"):
        port = read_port(tmp_path / "broker.sock")
        async with await trio.open_tcp_stream("127.0.0.1", port.port) as stream:
            stranger = Raw(stream)
            greeting = {"protocol": PROTOCOL} if token is None else {"protocol": PROTOCOL, "token": token}
            await stranger.send(greeting, {"id": 1, "operation": "status"})
            answer = await stranger.receive()
            assert (answer["id"], answer["error"]) == (None, "unwelcome")
            assert port.token not in str(answer)
            await stream.send_eof()
            await stranger.expect_close()


# What it answers


@unix
async def test_errors_of_operations(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @operation("test.crash")
    def crash(broker: Administered) -> None:
        """Crash."""
        raise ZeroDivisionError("by nothing")

    def ask(client: ControlClient) -> list[tuple[str, str]]:
        answers: list[tuple[str, str]] = []
        for name, arguments in (
            ("test.crash", {}),
            ("nothing", {}),
            ("clients.show", {}),
            ("clients.show", {"client_id": "x"}),
            ("plugins.disable", {"name": "x"}),
        ):
            try:
                client.call(name, **arguments)
            except ControlError as error:
                answers.append((error.code, str(error)))
        return answers

    try:
        async with controlled(tmp_path):
            answers = await through_socket(tmp_path, ask)
    finally:
        del OPERATIONS["test.crash"]
    assert [code for code, _ in answers] == ["failed", "bad_request", "bad_request", "not_found", "refused"]
    assert answers[0][1] == "test.crash crashed: ZeroDivisionError: by nothing"
    assert "Traceback" in caplog.text


@unix
async def test_an_answer_that_is_too_large(tmp_path: Path) -> None:
    async with controlled(tmp_path, max_frame_size=65_536) as here:
        here.node.publish("t", b"x" * 70_000, retain=True)
        with pytest.raises(ControlError, match="control.max_frame_size is 65536") as caught:
            await through_socket(tmp_path, lambda client: client.call("retained.show", topic="t"))
        assert caught.value.code == "too_large"


@unix
async def test_a_page_holds_no_more_bytes_than_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "PAGE_BYTES", 10_000)
    filters = [f"{number:02}/" + "x" * 3_000 for number in range(20)]
    async with controlled(tmp_path) as here:
        a = await here.client("a")
        for filter in filters:
            await a.subscribe(filter)

        def pages(client: ControlClient, *names: str) -> list[list[list[str]]]:
            return [[[row["filter"] for row in page] for page in client.pages(name)] for name in names]

        found = await through_socket(tmp_path, lambda client: pages(client, "subscriptions.list", "routes.list"))
        for listing in found:
            assert [len(page) for page in listing] == [3, 3, 3, 3, 3, 3, 2]
            assert [filter for page in listing for filter in page] == filters
        monkeypatch.setattr(control, "PAGE_BYTES", 10)
        (single,) = await through_socket(tmp_path, lambda client: pages(client, "routes.list"))
        assert [len(page) for page in single] == [1] * 20


# Thousands of rows, and others who have something to do


async def populate(here: Room, count: int) -> None:
    """So many clients that are away, each with a subscription."""
    for number in range(count):
        async with here.broker.connect() as stream:
            await stream.send_all(
                raw.connect(f"c{number:05}", clean=False, properties=raw.session_expiry(0xFFFFFFFE))
                + raw.subscribe(1, (f"own/{number:05}", 0))
                + raw.disconnect()
            )
            while await stream.receive_some():  # CONNACK, SUBACK, and the close
                pass


@unix
async def test_thousands_of_rows_come_paged_while_messages_flow(tmp_path: Path) -> None:
    count = 1_000
    async with controlled(tmp_path) as here:
        await populate(here, count)
        sender, taker = await here.client("sender"), await here.client("taker")
        await taker.subscribe(("t", 1))
        delivered = 0
        delivered_at_page: list[int] = []
        listing = True

        async def flow() -> None:
            nonlocal delivered
            while listing:
                await sender.publish("t", b"%d" % delivered, qos=1)
                await taker.take_publish("t", b"%d" % delivered, qos=1)
                delivered += 1

        def rows(client: ControlClient) -> dict[str, list[int]]:
            sizes: dict[str, list[int]] = {}
            seen: dict[str, set[str]] = {}
            for name, key in (("sessions.list", "client_id"), ("subscriptions.list", "filter")):
                for page in client.pages(name):
                    sizes.setdefault(name, []).append(len(page))
                    seen.setdefault(name, set()).update(row[key] for row in page)
                    delivered_at_page.append(delivered)
            assert len(seen["sessions.list"]) == count + 2
            assert len(seen["subscriptions.list"]) == count + 1
            return sizes

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flow)
            sizes = await through_socket(tmp_path, rows)
            listing = False
    assert sizes["sessions.list"] == [500] * 2 + [2]
    assert sizes["subscriptions.list"] == [500] * 2 + [1]
    # others had their turn all the while: messages came through between the first page and the last
    assert delivered_at_page[0] < delivered_at_page[-1]


@unix
async def test_a_client_that_reads_nothing_keeps_a_page_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = 0
    answer = control.Control._answer

    async def count(self: control.Control, packed: bytes) -> bytes:
        nonlocal answered
        answered += 1
        return await answer(self, packed)

    monkeypatch.setattr(control.Control, "_answer", count)
    async with controlled(tmp_path) as here:
        await populate(here, 500)
        async with by_hand(tmp_path) as deaf, trio.open_nursery() as nursery:
            asked = 0

            async def ask() -> None:
                nonlocal asked
                while True:
                    await deaf.send({"id": asked, "operation": "sessions.list"})
                    asked += 1

            nursery.start_soon(ask)
            await wait_all_tasks_blocked(0.05)
            assert asked > answered  # they wait in the system's buffers, and cost the broker nothing
            before = answered
            a = await here.client("a")
            await a.subscribe("t")
            for _ in range(50):
                await a.publish("t", b"x")
                await a.expect_publish("t", b"x")
            assert answered == before
            assert await through_socket(tmp_path, lambda client: client.call("status"))
            nursery.cancel_scope.cancel()


@unix
async def test_a_client_that_reads_nothing_for_too_long_is_let_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mock_clock: MockClock
) -> None:
    async with controlled(tmp_path, idle_timeout=20) as here:
        await populate(here, 500)
        async with by_hand(tmp_path) as deaf, trio.open_nursery() as nursery:

            async def ask() -> None:
                with contextlib.suppress(trio.BrokenResourceError):
                    while True:
                        await deaf.send({"id": 1, "operation": "sessions.list"})

            nursery.start_soon(ask)
            await wait_all_tasks_blocked(0.05)
            mock_clock.jump(21)
            assert here.node.control is not None
            while here.node.control.connections:
                await trio.lowlevel.checkpoint()
    assert "it read nothing for 20 s" in caplog.text


@unix
async def test_the_broker_ends_while_somebody_asks(tmp_path: Path) -> None:
    connected = trio.Event()
    said: list[str] = []
    loop = trio.lowlevel.current_trio_token()

    def ask_on(client: ControlClient) -> None:
        trio.from_thread.run_sync(connected.set, trio_token=loop)
        try:
            while True:
                client.call("metrics")
        except NoBroker as error:
            said.append(str(error))

    async with trio.open_nursery() as nursery, controlled(tmp_path):
        nursery.start_soon(through_socket, tmp_path, ask_on)
        await connected.wait()
    assert "is gone" in said[0]
    assert os.listdir(tmp_path) == []


async def test_a_control_server_that_crashes_is_there_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve, errors = trio.serve_listeners, [ValueError("a fault")]

    async def fails_once(*args: Any, **kwargs: Any) -> None:
        if errors:
            raise errors.pop()
        await serve(*args, **kwargs)

    monkeypatch.setattr(trio, "serve_listeners", fails_once)
    async with controlled(tmp_path) as here:
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert not errors
        assert await through_socket(tmp_path, lambda client: client.call("status"))
        assert here.node.alarms.active == []
