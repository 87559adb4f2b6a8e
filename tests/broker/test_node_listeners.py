"""All listeners of a node together."""

import socket

import pytest
import trio
from trio.testing import MockClock

from tests.wire import Wire
from trunkline import testing
from trunkline.broker.node_listeners import ListenError
from trunkline.config.listener_settings import ListenerSettings


async def test_no_more_connections_of_the_node_than_allowed() -> None:
    async with testing.broker(listeners=["tcp://127.0.0.1:0", "tcp://localhost:0"], limits={"max_connections": 1}) as b:
        first, second = b.node.listeners
        async with await Wire.open(*first.address) as wire:
            await wire.connect("first")
            async with await Wire.open(*second.address) as refused:
                await refused.expect_close()
            assert b.node.metrics.connections_refused == 1


async def test_an_address_in_use_is_one_line() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with pytest.raises(ListenError, match=rf"cannot listen on tcp://127\.0\.0\.1:{port}: .*in use"):
        async with testing.broker(listeners=[f"tcp://127.0.0.1:{port}"]):
            raise AssertionError("it listens")
    taken.close()


async def test_the_log_says_what_is_listened_for_and_where(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trunkline.node")
    every = {"url": "tcp://*:0", "allow_anonymous": True, "access_rules": ["allow 127.0.0.1", "deny all"]}
    async with testing.broker(listeners=[every, "ws://127.0.0.1:0"]) as b:
        ports = [listener.address[1] for listener in b.node.listeners]
    assert f"listening on all addresses port {ports[0]}: any client may connect" in caplog.messages
    assert f"listening on 127.0.0.1 port {ports[1]} (WebSocket): any client may connect, from this machine only" in (
        caplog.messages
    )


async def test_several_listeners_know_their_ports() -> None:
    async with testing.broker(listeners=["tcp://127.0.0.1:0", "tcp://localhost:0"]) as b:
        ports = {listener.address[1] for listener in b.node.listeners}
        assert len(ports) == 2
        assert 0 not in ports
        for listener in b.node.listeners:
            async with await Wire.open(*listener.address) as wire:
                await wire.connect("a")


async def test_listeners_share_the_connections_of_the_node(autojump_clock: MockClock) -> None:
    two = [{"url": "tcp://127.0.0.1:0", "name": "a"}, {"url": "tcp://127.0.0.1:0", "name": "b"}]
    async with testing.broker(listeners=two, rate={"connections": "1/m"}) as b:
        began = trio.current_time()
        for listener in b.node.listeners:
            async with await Wire.open(*listener.address) as wire:
                await wire.connect(listener.settings.name)
        assert trio.current_time() - began == pytest.approx(60, abs=1)
        assert (await b.node.figures())["rate.node.connections"] == 1


async def test_rates_of_one_listener_leave_others_alone(autojump_clock: MockClock) -> None:
    slow = {"url": "tcp://127.0.0.1:0", "name": "slow", "rate": {"messages": "1/s"}}
    async with testing.broker(listeners=[slow, {"url": "tcp://127.0.0.1:0", "name": "free"}]) as b:
        for listener, seconds in zip(b.node.listeners, (9, 0), strict=True):
            async with await Wire.open(*listener.address) as wire:
                await wire.connect("p")
                began = trio.current_time()
                for n in range(10):
                    await wire.publish("t", b"", qos=1, packet_id=n + 1)
                assert trio.current_time() - began == pytest.approx(seconds, abs=1)


async def test_connections_of_a_removed_listener_count_until_they_end() -> None:
    """Its address is free at once."""
    async with testing.broker(listeners=["tcp://127.0.0.1:0", "tcp://localhost:0"]) as b:
        first, second = b.node.listeners
        async with await Wire.open(*first.address) as leaving, await Wire.open(*second.address) as staying:
            await leaving.connect("leaving")
            await staying.connect("staying")
            b.node.listeners.remove(first)
            assert list(b.node.listeners) == [second]
            assert len(list(b.node.connections)) == 2
            await leaving.expect_disconnect(0x98)
            await leaving.abort()
            await b.wait_until(lambda: len(list(b.node.connections)) == 1)
            await staying.ping()
        socket.create_server(first.address).close()


async def test_a_listener_that_cannot_be_opened_leaves_nothing() -> None:
    async with testing.broker() as b:
        (listener,) = b.node.listeners
        with pytest.raises(ListenError, match="in use"):
            await b.node.listeners.open(ListenerSettings.model_validate(f"tcp://127.0.0.1:{b.port}"))
        assert list(b.node.listeners) == [listener]
        assert b.node.listeners.inside.connections == set()
