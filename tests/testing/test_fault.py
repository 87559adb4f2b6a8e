import asyncio
import socket

import pytest
from trio.testing import MockClock

from tests.broker.room import room
from tests.conformance import raw
from trunkline import testing
from trunkline.testing.faults import Faults


async def test_a_fault_lets_some_pass_and_ends_after_some() -> None:
    async with room() as here:
        client = await here.client("a")
        await client.subscribe("#")
        fault = here.broker.faults.drop("PUBLISH", direction="to", after=1, times=2)
        for number in range(5):
            here.broker.publish("t", str(number).encode())
        assert [(await client.expect_type(raw.PUBLISH)).payload for _ in range(3)] == [b"0", b"3", b"4"]
        assert fault.hits == 2
        assert repr(fault) == "<drop PUBLISH to, 2 hits>"


async def test_a_predicate_that_raises_is_the_tests_mistake_and_not_the_brokers_end() -> None:
    async with room() as here:
        client = await here.client("a")
        with pytest.raises(ZeroDivisionError), here.broker.faults.drop("PINGREQ", where=lambda _: 1 // 0):
            await client.ping()
        fault = here.broker.faults.drop("PINGREQ", where=lambda _: 1 // 0)
        await client.ping()
        with pytest.raises(ZeroDivisionError):
            await fault.triggered()


async def test_waiting_for_a_fault_that_does_not_happen_says_what_was_waited_for(autojump_clock: MockClock) -> None:
    async with room() as here:
        fault = here.broker.faults.drop("PUBACK", client="a")
        with pytest.raises(TimeoutError, match=r"drop PUBACK client 'a': happened 0 times in 3 s, 2 were waited for"):
            await fault.triggered(2, timeout=3)


def test_a_fault_that_does_not_happen_is_reported_without_await_too() -> None:
    with testing.broker() as b:
        assert isinstance(b.faults, Faults)
        with b.faults.drop("PUBACK") as fault, pytest.raises(TimeoutError, match="happened 0 times"):
            fault.triggered(timeout=0.01)
        with socket.create_connection((b.host, b.port)) as sock:
            sock.sendall(raw.connect("a"))
            sock.recv(100)
            b.faults.cut(client="a")
            with pytest.raises(ConnectionResetError):
                sock.recv(100)


def test_faults_are_awaited_in_asyncio() -> None:
    async def main() -> None:
        async with testing.broker() as b:
            reader, writer = await asyncio.open_connection(b.host, b.port)
            writer.write(raw.connect("a"))
            await reader.read(100)
            with b.faults.drop("PINGREQ", client="a") as fault:
                writer.write(raw.PINGREQ)
                await fault.triggered()
            with pytest.raises(TimeoutError, match="happened 0 times"):
                await b.faults.drop("PUBACK").triggered(timeout=0.01)
            await b.restart()
            with pytest.raises(ConnectionResetError):
                await reader.read(100)
            writer.close()

    asyncio.run(main())
