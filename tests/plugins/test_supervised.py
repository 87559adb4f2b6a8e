"""A run of a plugin takes the place of another: no message passes without either, and what fails changes nothing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.config.units import Flag, Text
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.plugins import Context, PluginError, Settings, hook, setting
from trunkline.plugins.manager import PluginRow

NOT_AUTHORIZED = 0x87
UNAVAILABLE = 0x88


def row(here: Room, name: str = "door") -> PluginRow:
    return next(row for row in here.admin.plugins.rows() if row.name == name)


class DoorSettings(Settings):
    guards = ("client.authenticate", "client.check_acl")

    way: Text = setting("", "How it fails to start.")
    nothing: Flag = setting(False, "A flag.")


class Door:
    """Lets in who comes, and no message to `shut`. Its start takes a while."""

    def __init__(self, context: Context[DoorSettings]) -> None:
        self.context, self.way = context, context.settings.way
        self.number = len(doors)
        self.pages: list[str] = []
        doors.append(self)
        self.refused = context.counter("refused", "Messages refused.")
        context.gauge("number", "Which one it is.", lambda: self.number)
        context.command("number", lambda: self.number)
        context.subscribe("heard", lambda message: self.pages.append(f"heard {message.payload.decode()}"))
        if self.way == "made":
            raise OSError("no such wire")

    async def start(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.way == "raises":
            self.context.raise_alarm("wire", "it is cut")
            raise OSError("no such wire")
        if self.way == "hangs":
            await trio.sleep_forever()
        if self.way == "exits":
            raise SystemExit("no such wire")
        if self.way == "subscribes":
            self.context.subscribe("too/many", lambda message: None)
        if self.way == "crashes":
            self.context.nursery.start_soon(self.crash)
            await wait_all_tasks_blocked()

    async def crash(self) -> None:
        raise OSError("no such wire")

    @hook("client.authenticate")
    def check(self, client: ClientInfo, password: bytes | None) -> Allow:
        return ALLOW

    @hook("message.publish")
    def look(self, client: ClientInfo, message: Message) -> Deny | None:
        if message.topic != "shut":
            return None
        self.refused.add()
        return Deny(Reason.NOT_AUTHORIZED)

    async def run(self) -> None:
        self.pages.append("runs")
        try:
            await trio.sleep_forever()
        finally:
            self.pages.append("cancelled")

    async def stop(self) -> None:
        await trio.lowlevel.checkpoint()
        self.pages.append("stopped")


doors: list[Door] = []


@pytest.fixture(autouse=True)
def _no_doors() -> None:
    doors.clear()


@asynccontextmanager
async def traffic(here: Room) -> AsyncIterator[list[int]]:
    """As long as the block runs, messages that the plugin has to refuse, and logins that it has to allow. Yields the
    reasons of the answers."""
    reasons: list[int] = []
    done = trio.Event()

    async def publish() -> None:
        client = await here.client("busy")
        while not done.is_set():
            answer = await client.publish("shut", qos=1)
            assert answer is not None
            reasons.append(answer.reason)

    async def log_in() -> None:
        while not done.is_set():
            await (await here.client("caller")).disconnect()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(publish)
        nursery.start_soon(log_in)
        yield reasons
        done.set()


async def test_no_message_passes_and_no_client_is_refused_while_it_is_reloaded() -> None:
    async with room() as here:
        await here.admin.plugins.enable("door", DoorSettings(), Door)
        async with traffic(here) as reasons:
            for _ in range(20):
                await here.admin.plugins.reload("door", DoorSettings(nothing=True))
        assert set(reasons) == {NOT_AUTHORIZED}
        figures = dict(here.admin.plugins.figures())
        assert figures["plugins.door.refused"] == len(reasons)
        assert figures["plugins.door.number"] == here.admin.plugins.call("door", "number", {}) == 20
        assert here.admin.plugins.enabled()["door"] == DoorSettings(nothing=True)
        assert (row(here).status, row(here).crashes) == ("running", 0)
        assert len(here.admin.hooks.listing("message.publish")) == 1


WAYS = {
    "made": "door cannot start: OSError: no such wire",
    "raises": "door cannot start: OSError: no such wire",
    "hangs": "door: its start was not complete after 60 s",
    "exits": "door: its start tried to end the process",
    "subscribes": "the broker refuses its subscription to 'too/many'",
    "crashes": "door cannot start: OSError: no such wire",
}


@pytest.mark.parametrize("way", WAYS)
async def test_one_that_cannot_start_changes_nothing(
    way: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(limits={"max_subscriptions": 2}) as here:
        plugins = here.admin.plugins
        await plugins.enable("door", DoorSettings(), Door)
        before = row(here), here.admin.hooks.listing(), plugins.enabled()
        client = await here.client("a")
        with pytest.raises(PluginError) as raised:
            await plugins.reload("door", DoorSettings(way=way))
        assert WAYS[way] in str(raised.value)
        assert str(raised.value).endswith("the plugin door goes on as before")
        assert "the plugin door goes on as before" in caplog.text
        assert (row(here), here.admin.hooks.listing(), plugins.enabled()) == before
        assert here.admin.alarms.active == []
        assert plugins.call("door", "number", {}) == dict(plugins.figures())["plugins.door.number"] == 0
        here.broker.publish("heard", b"once")
        answer = await client.publish("shut", qos=1)
        assert answer is not None
        assert answer.reason == NOT_AUTHORIZED
        await wait_all_tasks_blocked()
        assert [door.pages for door in doors] == [["runs", "heard once"], []]
        await plugins.reload("door")  # and with the settings of the one that goes on
        assert [door.way for door in doors] == ["", way, ""]


async def test_settings_that_the_plugin_does_not_have_change_nothing() -> None:
    class Others(Settings):
        wy: Text = setting("", "A key that is misspelt.")

    async with room() as here:
        await here.admin.plugins.enable("door", DoorSettings(), Door)
        before = row(here), here.admin.hooks.listing()
        with pytest.raises(PluginError) as raised:
            await here.admin.plugins.reload("door", lambda: Others(wy="raises"))
        assert raised.value.problems == [
            "plugins.door.wy: unknown key; did you mean way?",
            "the plugin door goes on as before",
        ]
        assert (row(here), here.admin.hooks.listing(), len(doors)) == (*before, 1)


async def test_what_was_running_before_ends_before_the_new_one_runs() -> None:
    order: list[str] = []

    class Worker:
        def __init__(self, context: Context[Settings]) -> None:
            self.name = f"{'second' if context.replaces else 'first'}"
            self.context = context

        async def run(self) -> None:
            order.append(f"{self.name} runs")
            try:
                await trio.sleep_forever()
            finally:
                order.append(f"{self.name} is cancelled")

        async def stop(self) -> None:
            await trio.lowlevel.checkpoint()
            order.append(f"{self.name} stops, {'replaced' if self.context.replaced else 'for good'}")

    async with room() as here:
        await here.admin.plugins.enable("worker", None, Worker)
        await here.admin.plugins.reload("worker")
        await wait_all_tasks_blocked()
        assert order == ["first runs", "first is cancelled", "first stops, replaced", "second runs"]
        await here.admin.plugins.disable("worker")
        assert order[4:] == ["second is cancelled", "second stops, for good"]


async def test_answers_that_the_former_run_owes_are_given() -> None:
    asked, decided = trio.Event(), trio.Event()

    class Gate:
        def __init__(self, context: Context[Settings]) -> None:
            self.stopped = False
            gates.append(self)

        @hook("client.authenticate")
        async def check(self, client: ClientInfo, password: bytes | None) -> Allow | None:
            if client.client_id == "patient":
                asked.set()
                await decided.wait()
                assert not self.stopped
            return ALLOW

        def stop(self) -> None:
            self.stopped = True

    gates: list[Gate] = []
    async with room() as here:
        await here.admin.plugins.enable("gate", None, Gate)
        patient = here.wire()
        await patient.send(raw.connect("patient"))
        await asked.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.admin.plugins.reload, "gate")
            await wait_all_tasks_blocked()
            assert [gate.stopped for gate in gates] == [False, False]
            await here.client("another")
            decided.set()
        assert (await patient.expect_type(raw.CONNACK)).reason == 0
        assert [gate.stopped for gate in gates] == [True, False]


async def test_an_answer_that_never_comes_does_not_keep_the_former_run_for_ever(autojump_clock: MockClock) -> None:
    class Silent:
        def __init__(self, context: Context[Settings]) -> None: ...

        @hook("client.check_acl")
        async def check(self, *_: object) -> None:
            await trio.sleep_forever()

        def stop(self) -> None:
            stopped.append(self)

    stopped: list[Silent] = []
    async with room(acl={"timeout": 3600}) as here:
        await here.admin.plugins.enable("silent", None, Silent)
        await (await here.client("a")).send(raw.publish("t", qos=1, packet_id=1))
        await wait_all_tasks_blocked()
        await here.admin.plugins.reload("silent")
        assert len(stopped) == 1


async def test_each_message_reaches_the_subscription_of_one_run() -> None:
    heard: list[bytes] = []

    def listening(context: Context[Settings]) -> None:
        context.subscribe("heard", lambda message: heard.append(message.payload))

    async with room() as here:
        await here.admin.plugins.enable("listening", None, listening)
        done = trio.Event()
        sent: list[bytes] = []

        async def publish() -> None:
            while not done.is_set():
                sent.append(b"%d" % len(sent))
                here.broker.publish("heard", sent[-1])
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(publish)
            for _ in range(20):
                await here.admin.plugins.reload("listening")
            done.set()
        await wait_all_tasks_blocked()
        assert heard == sent


async def test_timers_of_a_run_that_was_replaced_do_nothing(autojump_clock: MockClock) -> None:
    rung: list[int] = []
    answer = trio.Event()

    class Clock:
        def __init__(self, context: Context[Settings]) -> None:
            number = len(rung)
            context.after(5, lambda: rung.append(number))

        @hook("client.authenticate")
        async def wait(self, client: ClientInfo, password: bytes | None) -> None:
            if client.client_id == "patient":
                await answer.wait()  # so that the former run is there when its timer is due

    async with room() as here:
        await here.admin.plugins.enable("clock", None, Clock)
        await here.wire().send(raw.connect("patient"))
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.admin.plugins.reload, "clock")
            await trio.sleep(6)
            answer.set()
        assert rung == [0]


class Alarming:
    """The first one has trouble; those behind it say in their start what they find."""

    found = ""

    def __init__(self, context: Context[Settings]) -> None:
        self.context, self.first = context, not context.replaces
        self.state = "trouble" if self.first else type(self).found

    def start(self) -> None:
        if self.state == "trouble":
            self.context.raise_alarm("trouble", "there is some")
        elif self.state == "none":
            self.context.clear_alarm("trouble")

    def stop(self) -> None:
        self.context.clear_alarm("trouble")
        self.context.raise_alarm("late", "it is replaced")


@pytest.mark.parametrize(("found", "active"), [("trouble", ["alarming.trouble"]), ("none", []), ("", [])])
async def test_each_run_clears_its_own_alarms(found: str, active: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Alarming, "found", found)
    async with room() as here:
        await here.admin.plugins.enable("alarming", None, Alarming)
        assert [alarm.name for alarm in here.admin.alarms.active] == ["alarming.trouble"]
        await here.admin.plugins.reload("alarming")
        assert [alarm.name for alarm in here.admin.alarms.active] == active


async def test_one_that_crashes_after_it_took_over_is_started_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Crashing:
        def __init__(self, context: Context[Settings]) -> None:
            self.number = len(made)
            made.append(self.number)
            context.command("number", lambda: self.number)

        @hook("client.connected")
        def greet(self, client: ClientInfo) -> None: ...

        async def run(self) -> None:
            if self.number:
                await trio.sleep(10)
                raise OSError("the wire is cut")
            await trio.sleep_forever()

    made: list[int] = []
    async with room() as here:
        await here.admin.plugins.enable("crashing", Settings(restarts=1, restarts_within=1000), Crashing)
        await here.admin.plugins.reload("crashing")
        await trio.sleep(15)
        assert here.admin.plugins.call("crashing", "number", {}) == 2
        assert (row(here, "crashing").status, row(here, "crashing").crashes) == ("running", 1)
        await trio.sleep(10)
        assert (row(here, "crashing").status, row(here, "crashing").crashes) == ("disabled", 2)
        assert here.admin.hooks.listing("client.connected") == []
        await here.admin.plugins.reload("crashing")  # one that does not run is started
        assert (row(here, "crashing").status, row(here, "crashing").crashes) == ("running", 0)


async def test_one_that_crashes_while_the_next_one_starts_has_its_place_taken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    crash, go = trio.Event(), trio.Event()

    class Slow:
        def __init__(self, context: Context[Settings]) -> None:
            self.number = len(made)
            made.append(self)
            context.command("number", lambda: self.number)

        async def start(self) -> None:
            if self.number:
                await go.wait()

        @hook("client.connected")
        def greet(self, client: ClientInfo) -> None: ...

        async def run(self) -> None:
            await crash.wait()
            if not self.number:
                raise OSError("the wire is cut")

    made: list[Slow] = []
    async with room() as here:
        await here.admin.plugins.enable("slow", None, Slow)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(here.admin.plugins.reload, "slow")
            await wait_all_tasks_blocked()
            crash.set()
            await wait_all_tasks_blocked()
            go.set()
        assert here.admin.plugins.call("slow", "number", {}) == 1
        assert (row(here, "slow").status, row(here, "slow").hooks) == ("running", 1)
        assert len(here.admin.hooks.listing("client.connected")) == 1


async def test_a_former_run_that_does_not_end_is_named(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    over = trio.Event()

    class Stubborn:
        def __init__(self, context: Context[Settings]) -> None:
            self.first = not context.replaces

        async def run(self) -> None:
            if self.first:
                with trio.CancelScope(shield=True):
                    await over.wait()

    async with room() as here:
        await here.admin.plugins.enable("stubborn", None, Stubborn)
        await here.admin.plugins.reload("stubborn")
        assert row(here, "stubborn").status == "running"
        over.set()
    assert "tasks still run 5.0 s after its end" in caplog.text


async def test_the_end_of_the_node_ends_a_reload(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        async with room() as here:
            await here.admin.plugins.enable("door", DoorSettings(start_timeout=1e6), Door)
            ended = trio.Event()

            async def reload() -> None:
                with pytest.raises(PluginError, match="cancelled"):
                    await here.admin.plugins.reload("door", DoorSettings(way="hangs", start_timeout=1e6))
                ended.set()

            nursery.start_soon(reload)
            await wait_all_tasks_blocked()
        await ended.wait()
    assert trio.current_time() < 1e5
    assert [door.pages for door in doors] == [["runs", "cancelled", "stopped"], []]
