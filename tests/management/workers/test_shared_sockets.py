"""Listening sockets that several workers have."""

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from trunkline.broker.net.listening_sockets import SocketsWanted
from trunkline.config.listener_settings import ListenerSettings
from trunkline.management.workers import shared_sockets
from trunkline.management.workers.shared_sockets import SPREADS, SharedSockets

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there are no workers there")

ANY = "tcp://127.0.0.1:0"


@asynccontextmanager
async def shared() -> AsyncGenerator[SharedSockets]:
    sockets = SharedSockets()
    try:
        yield sockets
    finally:
        sockets.close()


@pytest.fixture(params=[False, True], ids=["passed", "spread"])
def spreads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """As on any system, and as on Linux."""
    if request.param and not SPREADS:
        pytest.skip("this system does not spread connections")
    monkeypatch.setattr(shared_sockets, "SPREADS", request.param)
    return bool(request.param)


def wanted(url: str = ANY, **settings: object) -> SocketsWanted:
    return SocketsWanted.of(ListenerSettings.model_validate({"url": url, **settings}))


def accepted(sockets: list[socket.socket]) -> int:
    count = 0
    for each in sockets:
        each.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                each.accept()[0].close()
                count += 1
    return count


async def test_all_workers_get_connections_of_one_port(spreads: bool) -> None:
    async with shared() as sockets:
        taken = [(await sockets.take(wanted(), worker))[0] for worker in range(3)]
        for each in taken:
            each.listen()
        (address,) = {each.getsockname() for each in taken}
        for _ in range(60):
            socket.create_connection(address).close()
        counts = [accepted([each]) for each in taken]
        assert sum(counts) == 60
        if spreads:
            assert all(counts)
        for each in taken:
            each.close()


async def test_one_that_is_gone_gets_no_connections(spreads: bool) -> None:
    """Nobody waits in the queue of a worker that has crashed."""
    async with shared() as sockets:
        (gone,), (stays,) = await sockets.take(wanted(), 0), await sockets.take(wanted(), 1)
        gone.listen()
        stays.listen()
        address = stays.getsockname()
        gone.close()
        for _ in range(20):
            socket.create_connection(address).close()
        assert accepted([stays]) == 20
        (again,) = await sockets.take(wanted(), 0)
        assert again.getsockname() == address
        again.close()
        stays.close()


async def test_nobody_else_can_have_the_address(spreads: bool) -> None:
    async with shared() as sockets:
        (taken,) = await sockets.take(wanted(), 0)
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="ddress already in use"):
            await SharedSockets().take(wanted(f"tcp://127.0.0.1:{port}"), 0)
        taken.close()


async def test_workers_that_ask_at_the_same_time_all_get_the_address(spreads: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    found: list[socket.socket] = []
    async with shared() as sockets:

        async def ask(worker: int) -> None:
            found.extend(await sockets.take(wanted(url), worker))

        async with trio.open_nursery() as nursery:
            for worker in range(4):
                nursery.start_soon(ask, worker)
        assert len({each.getsockname() for each in found}) == 1
        assert len(found) == 4
        for each in found:
            each.close()


async def test_listeners_without_a_port_get_one_each() -> None:
    async with shared() as sockets:
        found = [(await sockets.take(wanted(name=name), 0))[0] for name in ("a", "b")]
        assert found[0].getsockname() != found[1].getsockname()
        for each in found:
            each.close()


async def test_an_address_is_given_up_when_nobody_has_it_any_more(spreads: bool) -> None:
    async with shared() as sockets:
        (first,), (second,) = await sockets.take(wanted(), 0), await sockets.take(wanted(), 1)
        address = first.getsockname()
        second.listen()
        first.close()
        sockets.give_up(wanted(), 0)
        with pytest.raises(OSError, match="ddress already in use"), socket.create_server(address):
            pass
        second.close()
        sockets.give_up(wanted(), 1)
        sockets.give_up(wanted(), 1)
        with socket.create_server(address):
            pass


async def test_an_address_in_use_is_found_before_a_worker_asks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        async with shared() as sockets:
            with pytest.raises(OSError, match="ddress already in use"):
                await sockets.reserve(ListenerSettings(url=f"tcp://127.0.0.1:{taken.getsockname()[1]}"))


async def test_unix_sockets_are_shared_and_their_file_goes_at_the_end() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "s")
        async with shared() as sockets:
            here = wanted(f"unix://{path}")
            found = [(await sockets.take(here, worker))[0] for worker in range(2)]
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
            assert accepted(found) == 1
            for each in found:
                each.close()
            assert os.listdir(folder)
        assert not os.listdir(folder)
