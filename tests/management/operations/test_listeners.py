import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.management.asking import all_rows, ask, refused
from tests.wire import Wire
from trunkline.broker.net import poller as polling
from trunkline.management.operations.registry import BadRequest, NotFound, Refused

URL = "tcp://127.0.0.1:0"


async def there(here: Room, name: str = URL) -> Wire:
    (listener,) = [each for each in here.admin.listeners if each.settings.label == name]
    return await Wire.open(*listener.address)


async def rows(here: Room) -> list[Any]:
    return [(row.name, row.state, row.connections) for row in await all_rows(here, "listeners.list")]


async def test_add_and_remove() -> None:
    async with room() as here:
        added = await ask(here, "listeners.add", url=f"{URL}?name=more&max_connections=5")
        assert (added.name, added.state) == ("more", "listening")
        assert added.addresses == f"127.0.0.1:{list(here.admin.listeners)[1].address[1]}"
        async with await there(here, "more") as wire:
            await wire.connect("a")
            assert await rows(here) == [(URL, "listening", 0), ("more", "listening", 1)]
            assert await ask(here, "listeners.remove", name="more") == {"removed": "more"}
            await wire.expect_disconnect(0x98)
        assert await rows(here) == [(URL, "listening", 0)]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(added.addresses.split(":")).close()
        assert await refused(here, NotFound, "listeners.remove", name="more") == "no listener 'more'"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has more than one loopback address of IPv4")
async def test_each_address_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]

    async with room() as here:
        monkeypatch.setattr(trio.socket, "getaddrinfo", resolve)
        added = await ask(here, "listeners.add", url="tcp://localhost:0")
        port = list(here.admin.listeners)[1].address[1]
        assert added.addresses == f"127.0.0.1:{port}, 127.0.0.2:{port}"


@pytest.mark.parametrize(
    ("url", "kind", "text"),
    [
        ("tcp://0.0.0.0:0", BadRequest, "other machines can reach tcp://0.0.0.0:0 without logging in"),
        (f"{URL}?nam=x", BadRequest, "tcp://127.0.0.1:0 has an unknown parameter, nam"),
        (URL, BadRequest, 'is called "tcp://127.0.0.1:0" too'),
        ("127.0.0.1:1883", BadRequest, 'url: "127.0.0.1:1883": no scheme; accepted is "tcp://HOST:PORT"'),
        (f"{URL}?max_connections=many", BadRequest, "max_connections: accepted is a whole number, 1 or more"),
        ("unix:///no/such/folder/mqtt.sock", Refused, "No such file or directory"),
        ("tls://127.0.0.1:0?cert=/no.pem", Refused, "tls://127.0.0.1:0: /no.pem: No such file"),
    ],
)
async def test_what_cannot_be_added(url: str, kind: Any, text: str) -> None:
    async with room() as here:
        assert text in await refused(here, kind, "listeners.add", url=url)
        assert len(list(here.admin.listeners)) == 1


async def test_credential_files_are_for_the_configuration(tmp_path: Path) -> None:
    async with room() as here:
        url = f"{URL}?name=more&password_file={tmp_path / 'users'}"
        assert "credential files are read at the start" in await refused(here, Refused, "listeners.add", url=url)


async def test_pause_and_resume() -> None:
    async with room() as here:
        assert (await ask(here, "listeners.pause", name=URL)).state == "paused"
        wire = await there(here)
        await wire.send(raw.connect("patient"))
        await trio.testing.wait_all_tasks_blocked()
        assert await rows(here) == [(URL, "paused", 0)]
        assert (await ask(here, "listeners.resume", name=URL)).state == "listening"
        await wire.expect_type(raw.CONNACK)
        await wire.abort()


@pytest.mark.parametrize("polled", [True, False])
async def test_drain_and_resume(polled: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    if not polled:
        monkeypatch.setattr(polling, "available", lambda: False)
    async with room(listeners=[{"url": URL, "reuse_port": True}]) as here:
        async with await there(here) as one, await there(here) as two, await there(here) as silent:
            await one.connect("one")
            await two.connect("two")
            assert (await ask(here, "listeners.drain", name=URL, rate=1)).state == "closed"
            assert "closed" in await refused(here, Refused, "listeners.pause", name=URL)
            for wire in (one, two):
                await wire.expect_disconnect(0x98)
            await silent.expect_close()
        assert (await ask(here, "listeners.resume", name=URL)).state == "listening"
        async with await there(here) as wire:
            await wire.connect("back")
