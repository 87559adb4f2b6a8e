"""What a test sees of its broker and does with it, in the test's own trio run."""

import pytest
import trio
from trio.testing import MockClock

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.config.errors import ConfigError
from trunkline.hooks import ClientInfo, Hooks
from trunkline.mqtt.message import Message
from trunkline.plugins import Context, Settings, hook, setting
from trunkline.plugins.errors import PluginError


async def test_brokers_side_by_side_know_nothing_of_each_other() -> None:
    async with testing.broker() as one, testing.broker() as two:
        assert one.port != two.port
        wires = [Wire(one.connect()), Wire(two.connect())]
        for wire in wires:
            await wire.connect("same")
            await wire.subscribe(("t", 0))
        one.publish("t", b"x")
        await wires[0].expect_publish("t", b"x")
        await wires[1].expect_nothing()
        for wire in wires:
            await wire.abort()


async def test_settings_are_those_of_the_configuration() -> None:
    async with testing.broker(mqtt={"max_qos": 1}) as b, Wire(b.connect()) as wire:
        connack = await wire.connect("a")
        assert connack.get(raw.MAXIMUM_QOS) == 1
    with pytest.raises(ConfigError, match="max_quos"):
        async with testing.broker(mqtt={"max_quos": 1}):
            raise AssertionError("it started")


async def test_hooks_may_be_there_from_the_start() -> None:
    hooks = Hooks()
    seen: list[str] = []
    hooks.add("client.connected", lambda client: seen.append(client.client_id))
    async with testing.broker(hooks=hooks) as b, Wire(b.connect()) as wire:
        assert b.hooks is hooks
        await wire.connect("a")
    assert seen == ["a"]


async def test_the_tests_clock_is_the_brokers(autojump_clock: MockClock) -> None:
    async with testing.broker() as b:
        wire = Wire(b.connect(), patience=10_000)
        await wire.connect("a", keep_alive=3600)
        began = trio.current_time()
        await wire.expect_disconnect(0x8D)
        assert trio.current_time() - began == pytest.approx(5400, abs=1)
        await wire.abort()


async def test_clients_are_those_that_are_connected_and_sessions_those_that_may_come_back() -> None:
    async with testing.broker() as b, Wire(b.connect()) as here, Wire(b.connect(), version=4) as away:
        await here.connect("here")
        await away.connect("away", clean=False)
        await away.abort()
        await b.wait_until(lambda: len(b.clients) == 1)
        assert [row.client_id for row in b.clients] == ["here"]
        assert [(row.client_id, row.connected, row.version) for row in b.sessions] == [
            ("away", False, "3.1.1"),
            ("here", True, "5.0"),
        ]


async def test_subscriptions_and_retained_messages_are_listed() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        await wire.subscribe(("x/+", 1), ("y", 0))
        assert [(row.filter, row.client_id, row.qos) for row in b.subscriptions] == [("x/+", "a", 1), ("y", "a", 0)]
        b.publish("kept/1", "text", retain=True)
        b.publish("kept/2", b"bytes", qos=1, retain=True, properties={"message_expiry_interval": 60})
        b.publish("gone", b"", retain=True)
        rows = [(row.topic, row.payload, row.qos, row.expires_in is None) for row in b.retained]
        assert rows == [("kept/1", b"text", 0, True), ("kept/2", b"bytes", 1, False)]


async def test_its_own_messages_go_to_subscribers() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        await wire.subscribe(("x", 1))
        message = b.publish("x", "hello", qos=1, properties={"content_type": "text/plain"})
        packet = await wire.take_publish("x", b"hello", qos=1)
        assert packet.get(0x03) == "text/plain"
        assert (message.payload, message.delivered_to) == (b"hello", ("a",))
        assert message == b.messages[0]
        assert b.publish("y").outcomes == {}


@pytest.mark.parametrize("topic", ["a/#", "", "a\0", "x" * 65_536])
async def test_what_is_no_topic_is_a_wrong_value(topic: str) -> None:
    async with testing.broker() as b:
        with pytest.raises(ValueError, match="^(this is no topic name: |a string )"):
            b.publish(topic, "x")


async def test_a_wait_without_an_end_shows_its_condition(autojump_clock: MockClock) -> None:
    def never() -> bool:
        return False

    async with testing.broker() as b:
        with pytest.raises(TimeoutError, match=r"within 5 s: `lambda: b.retained`\n"):
            await b.wait_until(lambda: b.retained)
        with pytest.raises(TimeoutError, match=r"within 5 s: test_a_wait_.*<locals>.never\n"):
            await b.wait_until(never)
        with pytest.raises(TimeoutError, match=r"within 5 s: <lambda>\n"):
            await b.wait_until(eval("lambda: False"))


async def test_a_client_can_be_kicked() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        b.kick("a")
        await wire.expect_disconnect(0x98)
        await b.wait_until(lambda: not b.clients)
        with pytest.raises(LookupError, match="no client 'a' is connected; connected: nobody"):
            b.kick("a")


async def test_alarms_and_figures() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire:
        await wire.connect("a")
        assert (await b.metrics())["connections.count"] == 1
        assert b.alarms == []
        b.node.alarms.activate("hot", "it is")
        assert [(alarm.name, alarm.text) for alarm in b.alarms] == [("hot", "it is")]


async def test_its_address_as_one_text() -> None:
    async with testing.broker() as b:
        assert b.url == f"mqtt://127.0.0.1:{b.port}"
    async with testing.broker(listeners=["tcp://[::1]:0"]) as b:
        assert b.url == f"mqtt://[::1]:{b.port}"


class Word(Settings):
    word: str = setting("hello", "What is said.")


class Greeter:
    def __init__(self, context: Context[Word]) -> None:
        self.context = context
        context.command("shout", lambda times: context.settings.word * int(times))

    @hook("client.connected")
    def greet(self, client: ClientInfo) -> None:
        self.context.publish(f"greetings/{client.client_id}", self.context.settings.word.encode(), retain=True)


async def test_a_plugin_that_is_not_installed_can_be_run() -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire:
        await b.plugins.enable("greeter", Word(word="hi"), Greeter)
        await wire.connect("a")
        assert [(row.topic, row.payload) for row in b.retained] == [("greetings/a", b"hi")]
        assert b.plugins.call("greeter", "shout", times=2) == "hihi"
        await b.plugins.reload("greeter", Word(word="ho"))
        assert b.plugins.call("greeter", "shout", times=1) == "ho"
        (row,) = [row for row in b.plugins.rows() if row.name == "greeter"]
        assert (row.status, row.hooks) == ("running", 1)
        await b.plugins.disable("greeter")
        with pytest.raises(PluginError, match="does not run"):
            b.plugins.call("greeter", "shout", times=1)


async def test_plugins_are_among_the_settings() -> None:
    with pytest.raises(ConfigError, match="no plugin 'nobodys' is installed"):
        async with testing.broker(plugins={"nobodys": {}}):
            raise AssertionError("it started")
    rules = [{"source": "old/#", "pattern": "^old/(.+)$", "target": "new/$1"}]
    async with testing.broker(plugins={"topic-rewrite": {"rules": rules}}) as b:
        (row,) = [row for row in b.plugins.rows() if row.name == "topic-rewrite"]
        assert row.status == "running", row.problem


async def test_without_a_history_a_message_knows_what_it_is_and_no_more() -> None:
    async with testing.broker(history=0) as b:
        message = b.publish("x", "hello", qos=1, retain=True)
        assert (message.topic, message.payload, message.qos, message.retain, message.outcomes) == (
            "x",
            b"hello",
            1,
            True,
            {},
        )


async def test_where_its_listeners_are() -> None:
    listeners = [{"url": "tcp://127.0.0.1:0"}, {"url": "tcp://[::1]:0", "name": "auth"}]
    async with testing.broker(listeners=listeners) as b:
        auth = b.listeners["auth"]
        assert auth.url == f"mqtt://[::1]:{auth.port}"
        assert auth.port != b.port
        assert list(b.listeners) == ["tcp://127.0.0.1:0", "auth"]
        first = b.listeners
        await b.restart()
        assert b.listeners["auth"] == auth
        assert set(b.listeners.values()) == set(first.values())
    async with testing.broker(listeners=[]) as b:
        with pytest.raises(RuntimeError, match="has no listeners"):
            _ = b.port


async def test_waiting_for_clients_and_subscriptions(autojump_clock: MockClock) -> None:
    async with testing.broker() as b, Wire(b.connect()) as wire, Wire(b.connect()) as refused:
        with b.faults.refuse_connect("BANNED"):
            await refused.send(raw.connect("nobody"))
            with pytest.raises(
                TimeoutError, match="the client 'a' did not connect within 5 s\n(.*\n)+  nobody: refused .banned"
            ):
                await b.wait_for_client("a")
        with pytest.raises(TimeoutError, match="no client connected within 1 s"):
            await b.wait_for_client(timeout=1)
        await wire.connect("a")
        assert (await b.wait_for_client("a")).connected
        assert (await b.wait_for_client()).client_id == "a"
        with pytest.raises(TimeoutError, match="the client 'a' has not subscribed to 'x/#' within 5 s"):
            await b.wait_for_subscription("x/#", "a")
        await wire.subscribe(("x/#", 1))
        assert (await b.wait_for_subscription("x/#", "a")).qos == 1
        assert (await b.wait_for_subscription()).filter == "x/#"


async def test_what_a_plugin_has_subscribed_to_reaches_it_when_it_is_enabled() -> None:
    """Several times, because trio runs tasks in random order."""
    async with testing.broker() as b:
        for number in range(20):
            heard: list[Message] = []

            def listener(context: Context[Settings], heard: list[Message] = heard) -> None:
                context.subscribe("say/#", heard.append)

            await b.plugins.enable(f"listener-{number}", factory=listener)
            b.publish("say/hello")
            await b.node.settled()
            assert [message.topic for message in heard] == ["say/hello"]
