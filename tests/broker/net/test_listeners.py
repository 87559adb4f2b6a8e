"""All listeners of a node together."""

import socket

import pytest
import trio
from trio.testing import MockClock

from tests.broker.inside import inside
from tests.broker.net.echo import Echo, EchoProtocol, net_services
from tests.wire import Wire
from trunkline import testing
from trunkline.broker.net.listeners import ListenError, Listeners
from trunkline.broker.net.passed import PassedConnection
from trunkline.config.config import Config
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.mqtt_settings import RateSettings


async def test_no_more_connections_of_the_node_than_allowed() -> None:
    async with testing.broker(listeners=["tcp://127.0.0.1:0", "tcp://localhost:0"], limits={"max_connections": 1}) as b:
        first, second = inside(b.node).listeners
        async with await Wire.open(*first.address) as wire:
            await wire.connect("first")
            async with await Wire.open(*second.address) as refused:
                await refused.expect_close()
            assert inside(b.node).metrics.connections_refused == 1


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
        ports = [listener.address[1] for listener in inside(b.node).listeners]
    assert f"listening on all addresses port {ports[0]}: any client may connect" in caplog.messages
    assert f"listening on 127.0.0.1 port {ports[1]} (WebSocket): any client may connect, from this machine only" in (
        caplog.messages
    )


async def test_several_listeners_know_their_ports() -> None:
    async with testing.broker(listeners=["tcp://127.0.0.1:0", "tcp://localhost:0"]) as b:
        ports = {listener.address[1] for listener in inside(b.node).listeners}
        assert len(ports) == 2
        assert 0 not in ports
        for listener in inside(b.node).listeners:
            async with await Wire.open(*listener.address) as wire:
                await wire.connect("a")


async def test_listeners_share_the_connections_of_the_node(autojump_clock: MockClock) -> None:
    two = [{"url": "tcp://127.0.0.1:0", "name": "a"}, {"url": "tcp://127.0.0.1:0", "name": "b"}]
    async with testing.broker(listeners=two, rate={"connections": "1/m"}) as b:
        began = trio.current_time()
        for listener in inside(b.node).listeners:
            async with await Wire.open(*listener.address) as wire:
                await wire.connect(listener.settings.name)
        assert trio.current_time() - began == pytest.approx(60, abs=1)
        assert (await b.node.figures())["rate.node.connections"] == 1


async def test_rates_of_one_listener_leave_others_alone(autojump_clock: MockClock) -> None:
    slow = {"url": "tcp://127.0.0.1:0", "name": "slow", "rate": {"messages": "1/s"}}
    async with testing.broker(listeners=[slow, {"url": "tcp://127.0.0.1:0", "name": "free"}]) as b:
        for listener, seconds in zip(inside(b.node).listeners, (9, 0), strict=True):
            async with await Wire.open(*listener.address) as wire:
                await wire.connect("p")
                began = trio.current_time()
                for n in range(10):
                    await wire.publish("t", b"", qos=1, packet_id=n + 1)
                assert trio.current_time() - began == pytest.approx(seconds, abs=1)


async def test_connections_of_a_removed_listener_count_until_they_end() -> None:
    """Its address is free at once."""
    async with testing.broker(listeners=["tcp://127.0.0.1:0", "tcp://localhost:0"]) as b:
        first, second = inside(b.node).listeners
        async with await Wire.open(*first.address) as leaving, await Wire.open(*second.address) as staying:
            await leaving.connect("leaving")
            await staying.connect("staying")
            inside(b.node).listeners.remove(first)
            assert list(inside(b.node).listeners) == [second]
            assert len(list(inside(b.node).listeners.connections)) == 2
            await leaving.expect_disconnect(0x98)
            await leaving.abort()
            await b.wait_until(lambda: len(list(inside(b.node).listeners.connections)) == 1)
            await staying.ping()
        socket.create_server(first.address).close()


async def test_a_listener_that_cannot_be_opened_leaves_nothing() -> None:
    async with testing.broker() as b:
        (listener,) = inside(b.node).listeners
        with pytest.raises(ListenError, match="in use"):
            await inside(b.node).listeners.open(ListenerSettings.model_validate(f"tcp://127.0.0.1:{b.port}"))
        assert list(inside(b.node).listeners) == [listener]
        assert inside(b.node).listeners.inside.connections == set()


async def test_the_scheme_of_a_listener_says_what_is_spoken_there() -> None:
    """No part of MQTT is needed for that."""
    settings, other = (ListenerSettings(url="tcp://127.0.0.1:0", name=name) for name in ("a", "b"))
    async with net_services() as services:
        spoken = list[EchoProtocol]()

        def echo(config: Config, settings: ListenerSettings | None) -> EchoProtocol:
            spoken.append(EchoProtocol(config, settings))
            return spoken[-1]

        config = Config(listeners=(settings, other))
        listeners = Listeners(services, config, {"tcp": echo, "ws": EchoProtocol}, echo)
        first, second = [await listeners.open(each) for each in config.listeners]
        assert [protocol.settings for protocol in spoken] == [None, settings, other]
        async with await trio.open_tcp_stream(*first.address) as stream:
            await stream.send_all(b"hello")
            assert await stream.receive_some() == b"hello"
            changed = ListenerSettings(url="tcp://127.0.0.1:0", name="b", versions=("5.0",))
            listeners.read(Config(listeners=(settings, changed)))()
            assert [(each.configured, each.settings) for each in spoken] == [(1, None), (1, settings), (1, changed)]
            (connection,) = listeners.connections
            assert isinstance(connection, Echo)
            assert connection.followed == 1
            assert second.settings is changed
        listeners.close()


async def test_what_was_drawn_stays_drawn_while_the_rate_is_the_same() -> None:
    settings = ListenerSettings(url="tcp://127.0.0.1:0")
    async with net_services() as services:
        config = Config(listeners=(settings,), rate=RateSettings(connections="1/m"))
        listeners = Listeners(services, config, {"tcp": EchoProtocol}, EchoProtocol)
        listener = await listeners.open(settings)
        (drawn,) = listener.rates
        listeners.read(Config(listeners=(settings,), rate=RateSettings(connections="1/m", messages="5/s")))()
        assert listener.rates == [drawn]
        listeners.read(Config(listeners=(settings,), rate=RateSettings(connections="2/m")))()
        assert [limit.text for limit in listener.rates] == ["connections = 2/m"]
        own = ListenerSettings(url="tcp://127.0.0.1:0", rate={"connections": "9/s"})  # type: ignore[arg-type]
        listeners.read(Config(listeners=(own,)))()
        assert [limit.text for limit in listener.rates] == ["connections = 9/s"]
        listeners.close()


@pytest.mark.parametrize("why", ["no such listener", "closed", "cannot be served"])
async def test_a_passed_connection_that_nobody_serves_is_closed(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with testing.broker(listeners=[{"url": "tcp://127.0.0.1:0", "name": "at"}]) as b:
        node = inside(b.node)
        (listener,) = node.listeners
        ours, theirs = socket.socketpair()
        async with await Wire.open(b.host, b.port) as wire:
            await wire.connect("first")
            if why == "closed":
                listener.close()
            elif why == "cannot be served":
                monkeypatch.setattr(listener.acceptor, "protocol", None)
            node.listeners.take(
                PassedConnection(theirs, "other" if why == "no such listener" else "at", None, None, b"", False)
            )
            monkeypatch.undo()
            assert theirs.fileno() < 0
            assert ours.recv(1) == b""
            ours.close()
            assert len(list(node.listeners.connections)) == 1
            assert node.metrics.connections_failed == (why == "cannot be served")
            assert node.metrics.connections_accepted == 1
