"""Plugins that break at every place where they can, and what becomes of the broker and of what they were to guard."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing
from trunkline.config.units import Text
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.plugins import Context, PluginError, Settings, hook, setting
from trunkline.plugins.manager import PluginRow


def row(here: Room, name: str) -> PluginRow:
    return next(row for row in here.node.plugins.rows() if row.name == name)


async def reason_of(client: Wire, topic: str) -> int | None:
    answer = await client.publish(topic, b"", qos=1)
    assert answer is not None
    return answer.reason


async def still_works(here: Room) -> None:
    watcher, client = await here.client("watcher"), await here.client("fresh")
    assert await watcher.subscribe(("works", 1)) == [1]
    await client.publish("works", b"x", qos=1)
    await watcher.expect_type(0x30)


# -- figures


@pytest.mark.parametrize("value", ["text", None, float("nan"), 10**400, RuntimeError("broken"), SystemExit(3)])
async def test_a_gauge_that_cannot_be_read(autojump_clock: MockClock, value: Any) -> None:
    def read() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    def factory(context: Context[Settings]) -> None:
        context.gauge("odd", "What nobody can read.", read)
        context.gauge("fine", "What can be read.", lambda: 7)

    async with room(sys={"interval": 1.0}) as here:
        await here.broker.plugins.enable("p", factory=factory)
        await trio.sleep(5)
        figures = await here.node.figures()
        assert figures["plugins.p.fine"] == 7
        assert "plugins.p.odd" not in figures
        await still_works(here)


# -- guards


class Guarded(Settings):
    guards = ("client.authenticate", "client.check_acl")
    word: str = setting("x", "A word.")


class Other(Settings):
    guards = ("client.authenticate", "client.check_acl")
    word: str = setting("x", "A word.")
    needed: Text = setting(..., "A text.")


class Gatekeeper:
    def __init__(self, context: Context[Guarded]) -> None:
        self.context = context
        context.command("crash", lambda: context.nursery.start_soon(self.fall))

    async def fall(self) -> None:
        raise RuntimeError("fell")

    @hook("client.authenticate")
    def who(self, client: ClientInfo, password: bytes | None) -> Allow | Deny:
        return Deny() if client.client_id == "stranger" else ALLOW

    @hook("client.check_acl")
    def what(self, client: ClientInfo, *_: object) -> Allow:
        return ALLOW


async def test_a_reload_that_fails_leaves_the_former_plugin_at_the_door() -> None:
    fails = False

    def factory(context: Context[Guarded]) -> Any:
        if fails:
            raise RuntimeError("no")
        return Gatekeeper(context)

    async with room() as here:
        await here.broker.plugins.enable("p", factory=factory)
        fails = True
        with pytest.raises(PluginError):
            await here.broker.plugins.reload("p")
        await the_door_is_kept(here)


async def test_a_reload_with_settings_that_no_longer_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = Guarded

    def factory(context: Any) -> Any:
        return Gatekeeper(context)

    monkeypatch.setattr("trunkline.plugins.manager.settings_of", lambda factory: model)
    async with room() as here:
        await here.broker.plugins.enable("p", Guarded(), factory=factory)
        model = Other
        with pytest.raises(PluginError):
            await here.broker.plugins.reload("p")
        await the_door_is_kept(here)


async def the_door_is_kept(here: Room) -> None:
    for client_id, reason in (("a", 0), ("stranger", 0x87)):
        wire = here.wire()
        await wire.send(raw.connect(client_id))
        assert (await wire.receive()).reason == reason


class Absent:
    """It guards what it does not decide."""

    def __init__(self, context: Context[Guarded]) -> None:
        context.command("crash", lambda: context.after(0, lambda: 1 / 0))


@pytest.mark.parametrize("plugin", [Gatekeeper, Absent])
async def test_a_crash_makes_a_client_suffer_until_the_plugin_runs_again(
    plugin: Callable[[Context[Guarded]], object],
) -> None:
    started, crashed, goes_on = False, trio.Event(), trio.Event()

    async def factory(context: Context[Guarded]) -> object:
        nonlocal started
        if started:
            crashed.set()
            await goes_on.wait()
        started = True
        return plugin(context)

    async with room() as here:
        plugins = here.node.plugins
        await plugins.enable("p", factory=factory)
        client = await here.client("a")
        assert await reason_of(client, "t") != 0x87
        plugins.call("p", "crash", {})
        await crashed.wait()
        assert await reason_of(client, "t") == 0x87
        goes_on.set()
        while await reason_of(client, "t") == 0x87:
            pass


async def test_rules_of_a_plugin_apply_from_its_start_to_its_end() -> None:
    class No:
        def __init__(self, context: Context[Settings]) -> None: ...

        @hook("client.check_acl")
        def no(self, *_: object) -> Deny:
            return Deny()

    async with room() as here:
        client = await here.client("a")
        for _ in range(2):
            assert await reason_of(client, "t") != 0x87
            await here.broker.plugins.enable("p", factory=No)
            assert await reason_of(client, "t") == 0x87
            await here.broker.plugins.disable("p")


# -- what ends processes


class Outcast(BaseException):
    """What no `except Exception` catches."""


@pytest.mark.parametrize("error", [SystemExit, Outcast])
@pytest.mark.parametrize(
    "place", ["hook", "run", "timer", "subscription", "stop", "command", "filter", "decider", "async", "task"]
)
async def test_a_plugin_that_ends_the_process(
    autojump_clock: MockClock, place: str, error: type[BaseException]
) -> None:
    def raising(*_: object) -> Any:
        raise error(3)

    async def araising(*_: object) -> Any:
        raise error(3)

    def factory(context: Context[Settings]) -> Any:
        match place:
            case "hook":
                context.hooks.add("message.publish", raising)
            case "decider":
                context.hooks.add("client.check_acl", raising)
            case "async":
                context.hooks.add("client.check_acl", araising)
            case "filter":
                context.hooks.add("message.publish", lambda *_: None, filter=raising)
            case "timer":
                context.after(1, lambda: raising())
            case "subscription":
                context.subscribe("#", lambda message: raising())
            case "command":
                context.command("go", lambda: raising())
            case "task":
                context.nursery.start_soon(araising)
            case "run":
                return type("P", (), {"run": araising})()
            case "stop":
                return type("P", (), {"stop": raising})()

    async with room() as here:
        await here.broker.plugins.enable("p", factory=factory)
        await trio.sleep(3)
        client = await here.client("a")
        await client.send(raw.publish("t", b"x", qos=1, packet_id=1))
        with trio.move_on_after(5):
            await client.receive()
        if place == "command":
            with pytest.raises(PluginError, match="end the process"):
                here.broker.plugins.call("p", "go")
        await trio.sleep(1)
        if row(here, "p").status == "running":
            await here.broker.plugins.disable("p")
        await still_works(here)
        in_a_hook = place in ("hook", "filter", "decider", "async")
        assert [type(error) for error in here.broker.hook_errors] == [error] * in_a_hook
        here.broker.hook_errors.clear()


# -- what does not end


class Stubborn:
    def __init__(self, context: Context[Settings]) -> None:
        pass

    async def run(self) -> None:
        until = trio.current_time() + 1000
        while trio.current_time() < until:
            try:
                await trio.sleep(1)
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await trio.sleep(1)


async def test_a_task_that_does_not_let_itself_be_cancelled(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with room() as here:
        plugins = here.broker.plugins
        await plugins.enable("p", factory=Stubborn)
        await plugins.enable("q", factory=Stubborn)
        for _ in range(2):
            with pytest.raises(PluginError, match="does not end"):
                await plugins.disable("p")
        assert row(here, "p").status == "failed"
        with pytest.raises(PluginError, match="does not end"):
            await plugins.enable("p", factory=Stubborn)
        await plugins.enable("other", factory=lambda context: None)
        await still_works(here)
        await trio.sleep(2000)
        await plugins.enable("p", factory=lambda context: None)
        assert row(here, "p").status == "running"


async def test_thousands_of_hooks() -> None:
    def factory(context: Context[Settings]) -> None:
        for _n in range(1000):
            context.hooks.add("client.connected", lambda client: None)

    async with room() as here:
        await here.broker.plugins.enable("p", factory=factory)
        assert len(here.node.hooks.client_connected) == 1000
        await here.client("a")
        await here.broker.plugins.disable("p")
        assert not here.node.hooks.client_connected
        await still_works(here)


async def test_disabling_from_a_command_and_a_hook(autojump_clock: MockClock) -> None:
    async with room() as here:
        plugins = here.broker.plugins

        def factory(context: Context[Settings]) -> None:
            async def end() -> None:
                await plugins.disable("p")

            context.hooks.add("client.connected", lambda client: context.nursery.start_soon(end))

        await plugins.enable("p", factory=factory)
        await here.client("a")
        await trio.sleep(100)
        assert row(here, "p").status == "stopped"
        await plugins.enable("p", factory=factory)
        await still_works(here)


@pytest.mark.parametrize(
    "error", [RuntimeError("no"), SystemExit(1), BaseExceptionGroup("x", [ValueError(), SystemExit(2)])]
)
@pytest.mark.parametrize("place", ["call", "start", "astart"])
async def test_a_start_that_fails(autojump_clock: MockClock, place: str, error: BaseException) -> None:
    def raising(*_: object) -> Any:
        raise error

    async def araising(*_: object) -> Any:
        raise error

    def factory(context: Context[Settings]) -> Any:
        context.hooks.add("client.connected", lambda c: None)
        if place == "call":
            raise error
        if place == "start":
            return type("P", (), {"start": raising})()
        return type("P", (), {"start": araising})()

    async with room() as here:
        with pytest.raises(PluginError):
            await here.broker.plugins.enable("p", factory=factory)
        assert not here.node.hooks.client_connected
        await still_works(here)


@pytest.mark.parametrize("point", ["", "message.delivered", "session.subscribed"])
async def test_circles(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plugin hears makes it do the same again, for ever. Others are served, and the broker ends."""
    monkeypatch.setattr("trunkline.broker.node.life.MAX_BUSY", 0.05)

    def factory(context: Context[Settings]) -> None:
        def again(*_: object) -> None:
            context.publish("circle", b"")

        def subscribe_again(client: ClientInfo, request: SubscriptionRequest) -> None:
            context.subscribe_client(client.client_id, request)

        if not point:
            context.subscribe("circle", again)
        elif point == "message.delivered":
            context.hooks.add(point, lambda client, message: again())
        else:
            context.hooks.add(point, subscribe_again)

    async with testing.broker(history=0, mqtt={"linger": 0}) as b:
        await b.plugins.enable("p", factory=factory)
        listener, other = [await Wire.open(b.host, b.port) for _ in range(2)]
        await listener.connect("listener")
        await other.connect("other")
        await listener.subscribe(("circle", 0))
        b.publish("circle", b"")
        await other.publish("t", b"x", qos=1)
        await other.abort()
        await listener.abort()
