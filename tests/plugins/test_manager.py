"""The life of a plugin: it starts, crashes, comes back, gives up, and leaves nothing behind."""

import logging
import sys
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.room import Room, room
from tests.conformance import raw
from trunkline.config.units import OptionalPath, Whole
from trunkline.hooks import ALLOW, Allow, ClientInfo
from trunkline.hooks.priorities import GUARD
from trunkline.mqtt.message import Message
from trunkline.plugins import Context, PluginError, Settings, hook, setting
from trunkline.plugins.manager import PluginRow


def row(here: Room, name: str) -> PluginRow:
    return next(row for row in here.admin.plugins.rows() if row.name == name)


class Notes(Settings):
    word: str = setting("hello", "What it says.")


class Diary:
    """Writes down what happens to it."""

    pages: list[str]

    def __init__(self, context: Context[Notes]) -> None:
        self.pages = []
        self.context = context
        books.append(self)
        self.pages.append(f"made {context.name} {context.settings.word}")

    async def start(self) -> None:
        await trio.lowlevel.checkpoint()
        assert not self.context.hooks.remove("client.connected", self.greet)  # hooks come after the start
        self.pages.append("started")

    @hook("client.connected")
    @hook("client.disconnected", filter=lambda client, reason, text: client.client_id != "unseen")
    def greet(self, client: ClientInfo, *_: object) -> None:
        self.pages.append(client.client_id)

    async def run(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self.pages.append("cancelled")

    async def stop(self) -> None:
        await trio.lowlevel.checkpoint()
        self.pages.append("stopped")


books: list[Diary] = []


@pytest.fixture(autouse=True)
def _no_books() -> Iterator[None]:
    books.clear()
    yield
    books.clear()


async def test_a_plugin_from_start_to_end() -> None:
    async with room() as here:
        plugins = here.admin.plugins
        await plugins.enable("diary", Notes(word="ahoy"), Diary)
        assert (row(here, "diary").status, row(here, "diary").hooks) == ("running", 2)
        (book,) = books
        await (await here.client("a")).disconnect()
        await (await here.client("unseen")).disconnect()
        await plugins.disable("diary")
        await here.client("b")
        assert book.pages == ["made diary ahoy", "started", "a", "a", "unseen", "cancelled", "stopped"]
        assert row(here, "diary").status == "stopped"
        assert not here.admin.hooks.client_connected
        await plugins.enable("diary", factory=Diary)
    assert books[1].pages == ["made diary hello", "started", "b", "cancelled", "stopped"]  # it sees clients leave


async def test_a_function_is_a_plugin_too() -> None:
    seen: list[str] = []

    async def greeter(context: Context[Notes]) -> None:
        await trio.lowlevel.checkpoint()

        @context.hooks.on("client.connected")
        def greet(client: ClientInfo) -> None:
            seen.append(f"{context.settings.word} {client.client_id}")

    async with room() as here:
        await here.admin.plugins.enable("greeter", factory=greeter)
        await here.client("a")
        await here.admin.plugins.disable("greeter")
        await here.client("b")
    assert seen == ["hello a"]


class Crashing:
    """Runs for ten seconds."""

    starts = 0

    def __init__(self, context: Context[Settings]) -> None:
        type(self).starts += 1

    @hook("message.publish")
    def look(self, client: ClientInfo, message: Message) -> None: ...

    async def run(self) -> None:
        await trio.sleep(10)
        raise LookupError("the page is gone")


async def test_a_crash_starts_it_again_until_it_is_too_often(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    Crashing.starts = 0
    async with room() as here:
        await here.admin.plugins.enable("crashing", Settings(restarts=2, restarts_within=1000), Crashing)
        await trio.sleep(15)
        assert (row(here, "crashing").status, row(here, "crashing").crashes, Crashing.starts) == ("running", 1, 2)
        assert len(here.admin.hooks.message_publish) == 1
        await trio.sleep(30)
        assert (row(here, "crashing").status, row(here, "crashing").crashes, Crashing.starts) == ("disabled", 3, 3)
        assert "LookupError: the page is gone" in row(here, "crashing").problem
        assert not here.admin.hooks.message_publish
        assert [alarm.name for alarm in here.admin.alarms.active] == ["plugin.crashing"]
        await here.client("the broker goes on")
        await here.admin.plugins.enable("crashing", Settings(restarts=2), Crashing)
        assert (row(here, "crashing").status, row(here, "crashing").problem) == ("running", "")
        assert here.admin.alarms.active == []
    assert "LookupError" in caplog.text


async def test_crashes_far_apart_do_not_count_together(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    Crashing.starts = 0
    async with room() as here:
        await here.admin.plugins.enable("crashing", Settings(restarts=1, restarts_within=5), Crashing)
        await trio.sleep(101)
        assert (row(here, "crashing").status, Crashing.starts) == ("running", 11)


def raises(context: Context[Settings]) -> None:
    context.hooks.add("client.connected", lambda client: None)
    raise OSError("no such wire")


class RaisesInStart:
    def __init__(self, context: Context[Settings]) -> None: ...

    @hook("client.connected")
    def greet(self, client: ClientInfo) -> None: ...

    async def start(self) -> None:
        raise OSError("no such wire")


def greets_nowhere(context: Context[Settings]) -> None:
    def greet(client: ClientInfo) -> None: ...

    context.hooks.add("client.conected", greet)


def greets_with_an_option_that_is_none(context: Context[Settings]) -> None:
    def greet(client: ClientInfo) -> None: ...

    context.hooks.add("client.connected", greet, prority=3)  # type: ignore[call-arg]


class OtherArguments:
    def __init__(self, context: Context[Settings]) -> None: ...

    @hook("client.connected")
    def greet(self, client: ClientInfo, password: bytes) -> None: ...


class PlainRun:
    def __init__(self, context: Context[Settings]) -> None: ...

    def run(self) -> None: ...


def exits(context: Context[Settings]) -> None:
    raise SystemExit("no wire")


async def never(context: Context[Settings]) -> None:
    context.hooks.add("client.connected", lambda client: None)
    await trio.sleep_forever()


async def asynchronous(*_: object) -> None: ...


def subscribes_asynchronously(context: Context[Settings]) -> None:
    context.subscribe("a/#", asynchronous)  # type: ignore[arg-type]


def subscribes_with_two_arguments(context: Context[Settings]) -> None:
    def take(topic: str, payload: bytes) -> None: ...

    context.subscribe("a/#", take)  # type: ignore[arg-type]


def waits_asynchronously(context: Context[Settings]) -> None:
    context.after(5, asynchronous)


def waits_without_arguments(context: Context[Settings]) -> None:
    def take(one: int, two: int) -> None: ...

    context.after(5, take, 1)


def commands_asynchronously(context: Context[Settings]) -> None:
    context.command("wait", asynchronous)


def not_settings(context: Context[int]) -> None: ...  # type: ignore[type-var]


def two_arguments(context: Context[Settings], other: int) -> None: ...


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (raises, ["bad cannot start: OSError: no such wire"]),
        (RaisesInStart, ["OSError: no such wire"]),
        (greets_nowhere, ["greets_nowhere.<locals>.greet", "'client.conected'", "did you mean client.connected"]),
        (greets_with_an_option_that_is_none, ["greet: a hook has no option 'prority'; did you mean priority?"]),
        (OtherArguments, ["OtherArguments.greet", "client.connected(client)", "password"]),
        (PlainRun, ["PlainRun.run is plain", "async"]),
        (exits, ["its start tried to end the process", "no wire"]),
        (never, ["its start was not complete after 60 s", "`run`"]),
        (subscribes_asynchronously, ["asynchronous is async; a subscription to 'a/#' needs a plain function"]),
        (
            subscribes_with_two_arguments,
            ["'a/#' calls back with 1 argument", "take takes (topic: str, payload: bytes)"],
        ),
        (waits_asynchronously, ["asynchronous is async; a timer needs a plain function"]),
        (waits_without_arguments, ["a timer calls back with 1 argument", "take takes (one: int, two: int)"]),
        (commands_asynchronously, ["asynchronous is async; a command needs a plain function"]),
        (not_settings, ["not_settings", "Context[int]", "Settings"]),
        (two_arguments, ["two_arguments", "one argument, its Context"]),
    ],
)
async def test_what_cannot_start_stops_only_itself(
    factory: Any, words: list[str], caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async with room() as here:
        with pytest.raises(PluginError) as raised:
            await here.admin.plugins.enable("bad", None, factory)
        assert all(word in str(raised.value) for word in words), str(raised.value)
        assert row(here, "bad").status == "failed"
        assert row(here, "bad").problem == str(raised.value).removeprefix("bad cannot start: ")
        assert here.admin.hooks.listing("client.connected") == []
        assert [alarm.name for alarm in here.admin.alarms.active] == ["plugin.bad"]
        await here.admin.plugins.enable("diary", None, Diary)
        await here.client("a")
        assert "a" in books[0].pages


async def test_a_timer_that_raises_is_a_crash_and_a_subscriber_that_raises_is_not(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    starts: list[float] = []

    def plugin(context: Context[Settings]) -> None:
        starts.append(context.now)
        context.after(100, lambda: 1 / 0)
        context.subscribe("t/#", lambda message: seen.append(message.payload) or 1 / 0)

    seen: list[bytes] = []
    async with room() as here:
        await here.admin.plugins.enable("timed", None, plugin)
        await trio.sleep(50)
        for payload in (b"1", b"2"):
            here.broker.publish("t/x", payload)
        await wait_all_tasks_blocked()
        assert (seen, row(here, "timed").crashes) == ([b"1", b"2"], 0)
        await trio.sleep(51)
        assert (row(here, "timed").crashes, len(starts)) == (1, 2)
        here.broker.publish("t/x", b"3")
        await wait_all_tasks_blocked()
        assert seen == [b"1", b"2", b"3"]  # once: the subscription of the first run is gone


async def test_a_plugin_is_enabled_when_its_subscriptions_are_in_force() -> None:
    seen: list[bytes] = []

    def plugin(context: Context[Settings]) -> None:
        here.node.supervisors.root["routes"].stop()  # and it is started again
        context.subscribe("t/#", lambda message: seen.append(message.payload))

    async with room() as here:
        await here.admin.plugins.enable("listening", None, plugin)
        assert here.admin.messages.publish("t/x", b"1") == 1
        await wait_all_tasks_blocked()
        assert seen == [b"1"]


async def test_a_plugin_whose_subscription_is_refused_cannot_start() -> None:
    async with room(limits={"max_subscriptions": 1}) as here:
        await (await here.client("a")).subscribe(("t", 0))
        with pytest.raises(
            PluginError, match=r"listening: the broker refuses its subscription to 't/#': quota_exceeded"
        ):
            await here.admin.plugins.enable("listening", None, lambda context: context.subscribe("t/#", print))
        assert row(here, "listening").status == "failed"


async def test_a_subscription_that_is_refused_later_is_a_crash(autojump_clock: MockClock) -> None:
    def plugin(context: Context[Settings]) -> None:
        context.after(100, context.subscribe, "t/#", print)

    async with room(limits={"max_subscriptions": 1}) as here:
        await (await here.client("a")).subscribe(("t", 0))
        await here.admin.plugins.enable("late", Settings(restarts=0), plugin)
        await trio.sleep(101)
        assert (row(here, "late").status, row(here, "late").crashes) == ("disabled", 1)
        assert row(here, "late").problem.endswith("the broker refuses its subscription to 't/#': quota_exceeded")


class Gate(Settings):
    guards = ("client.authenticate", "client.check_acl")


class Lets:
    """Lets everybody in who comes, for ten seconds."""

    def __init__(self, context: Context[Gate]) -> None: ...

    @hook("client.authenticate")
    def check(self, client: ClientInfo, password: bytes | None) -> Allow:
        return ALLOW

    async def run(self) -> None:
        await trio.sleep(10)
        raise OSError("the service is down")


async def test_what_a_guard_was_to_decide_nobody_else_does(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with room() as here:
        await here.client("before")
        await here.admin.plugins.enable("gate", Gate(restarts=0), Lets)
        listed = [entry for entry in here.admin.hooks.listing("client.authenticate") if entry.priority == GUARD]
        assert [(entry.name, here.admin.plugins.owner_of(entry.callback)) for entry in listed] == [
            ("guard of gate: denies while it is down", "gate")
        ]
        client = await here.client("a")
        await trio.sleep(11)
        assert row(here, "gate").status == "disabled"
        refused = here.wire()
        await refused.send(raw.connect("b"))
        assert (await refused.expect_type(raw.CONNACK)).reason == 0x88
        answer = await client.publish("not asked yet", b"", qos=1)
        assert answer is not None
        assert answer.reason == 0x87
        assert [alarm.name for alarm in here.admin.alarms.active] == ["plugin.gate"]
        await here.admin.plugins.disable("gate")  # an operator's word: then it is as if there had been none
        assert here.admin.alarms.active == []
        await here.client("c")


async def test_a_guard_that_never_started_denies_too(caplog: pytest.LogCaptureFixture) -> None:
    def broken(context: Context[Gate]) -> None:
        raise OSError("no key")

    async with room() as here:
        with pytest.raises(PluginError, match="no key"):
            await here.admin.plugins.enable("gate", None, broken)
        refused = here.wire()
        await refused.send(raw.connect("b"))
        assert (await refused.expect_type(raw.CONNACK)).reason == 0x88


async def test_reload_keeps_the_settings_or_takes_new_ones() -> None:
    async with room() as here:
        plugins = here.admin.plugins
        await plugins.enable("diary", Notes(word="one"), Diary)
        await plugins.reload("diary")
        await plugins.reload("diary", Notes(word="two"))
        assert [book.pages[0] for book in books] == ["made diary one", "made diary one", "made diary two"]
        assert books[1].pages[-1] == "stopped"


@pytest.mark.parametrize(
    ("source", "words"),
    [("import not_there", "No module named 'not_there'"), ("def plugin(): ...", "must be callable with one argument")],
)
async def test_reload_of_what_cannot_be_imported_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, words: str
) -> None:
    file, information = tmp_path / "late.py", tmp_path / "late-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[trunkline.plugins]\nlate = late:plugin\n")
    file.write_text("def plugin(context): context.hooks.add('client.connected', lambda client: None)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "late", raising=False)
    async with room() as here:
        await here.admin.plugins.enable("late")
        before = row(here, "late")
        file.write_text(source)
        with pytest.raises(PluginError, match=words):
            await here.admin.plugins.reload("late")
        assert row(here, "late") == before
        assert len(here.admin.hooks.listing("client.connected")) == 1
    monkeypatch.delitem(sys.modules, "late", raising=False)


async def test_requests_that_make_no_sense() -> None:
    async with room() as here:
        plugins = here.admin.plugins
        await plugins.enable("diary", None, Diary)
        for request, words in [
            (plugins.enable("diary", None, Diary), "runs already"),
            (plugins.enable("Not A Name", None, Diary), "lower-case letters"),
            (plugins.enable("topic-rewrit"), "did you mean topic-rewrite"),
            (plugins.disable("other"), "no plugin 'other' was started; started were diary"),
            (plugins.reload("other"), "no plugin 'other'"),
        ]:
            with pytest.raises(PluginError, match=words):
                await request
        with pytest.raises(PluginError, match="the plugin other does not run$"):
            plugins.call("other", "list", {})
        with pytest.raises(PluginError, match=r"the plugin dairy does not run; did you mean diary\?"):
            plugins.call("dairy", "list", {})


@asynccontextmanager
async def flow(here: Room, count: int) -> AsyncIterator[None]:
    """QoS 1 messages, one after the other, while the block runs; all of them arrive."""
    sender, receiver = await here.client("sender"), await here.client("receiver")
    await receiver.subscribe(("flow", 1))
    got: list[bytes] = []

    async def send() -> None:
        for number in range(count):
            await sender.publish("flow", b"%d" % number, qos=1)

    async def receive() -> None:
        while len(got) < count:
            packet = await receiver.expect_type(raw.PUBLISH)
            await receiver.acknowledge(packet)
            got.append(packet.payload)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        nursery.start_soon(receive)
        yield
    assert got == [b"%d" % number for number in range(count)]


async def test_coming_and_going_while_messages_flow_loses_none() -> None:
    seen: set[str] = set()

    def plugin(context: Context[Settings]) -> None:
        context.hooks.add("message.publish", lambda client, message: seen.add(message.topic))

    async with room() as here, flow(here, 500):
        for _ in range(50):
            await here.admin.plugins.enable("watch", None, plugin)
            await trio.lowlevel.checkpoint()
            await here.admin.plugins.disable("watch")
            assert not here.admin.hooks.message_publish
    assert seen == {"flow"}


async def test_the_end_of_the_node_is_the_end_of_its_plugins_last_one_first() -> None:
    order: list[str] = []

    class Ordered:
        def __init__(self, context: Context[Settings]) -> None:
            self.name = context.name

        def stop(self) -> None:
            order.append(self.name)

    async with room() as here:
        for name in ("one", "two", "three"):
            await here.admin.plugins.enable(name, None, Ordered)
    assert order == ["three", "two", "one"]


async def test_one_that_is_not_installed_leaves_nothing_behind() -> None:
    async with room() as here:
        with pytest.raises(PluginError, match="no plugin 'nosuch' is installed"):
            await here.admin.plugins.enable("nosuch")
        assert "nosuch" not in [row.name for row in here.admin.plugins.rows()]
        assert here.admin.alarms.active == []


async def test_errors_that_it_outlives_are_counted() -> None:
    def clumsy(context: Context[Settings]) -> None:
        context.hooks.add("client.connected", lambda client: 1 // 0)
        context.subscribe("t", lambda message: 1 // 0)
        context.gauge("ratio", "Of nothing.", lambda: 1 // 0)

    async with room() as here:
        await here.admin.plugins.enable("clumsy", factory=clumsy)
        await here.client("a")
        assert (row(here, "clumsy").errors, row(here, "clumsy").crashes) == (1, 0)
        here.broker.publish("t")
        await wait_all_tasks_blocked()
        await here.admin.figures()
        assert row(here, "clumsy").errors == 3
        await here.admin.plugins.reload("clumsy")
        await here.client("b")
        assert row(here, "clumsy").errors == 4
        await here.admin.plugins.disable("clumsy")
        assert row(here, "clumsy").errors == 4
        here.broker.hook_errors.clear()


async def test_an_import_that_fails_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_plugin.py").write_text("def size(): return 1 // 0\nsize()\n")
    information = tmp_path / "broken-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: broken\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[trunkline.plugins]\nbroken = broken_plugin:plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    async with room() as here:
        with pytest.raises(PluginError, match=r"broken_plugin\.py:1: ZeroDivisionError"):
            await here.admin.plugins.enable("broken")
        assert [alarm.name for alarm in here.admin.alarms.active] == ["plugin.broken"]
    (record,) = [record for record in caplog.records if record.exc_info]
    assert lines_of(record) == ["<module>", "size"]


def lines_of(record: logging.LogRecord) -> list[str]:
    """The functions in its traceback."""
    assert record.exc_info is not None
    return [entry.name for entry in traceback.extract_tb(record.exc_info[2])]


async def test_the_log_shows_a_plugins_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    def helper() -> None:
        raise LookupError("no such door")

    class Door:
        def __init__(self, context: Context[Settings]) -> None:
            helper()

    class Gate:
        def __init__(self, context: Context[Settings]) -> None: ...

        async def start(self) -> None:
            helper()

    class Fence:
        def __init__(self, context: Context[Settings]) -> None: ...

        async def run(self) -> None:
            helper()

    async with room() as here:
        for name, kind in {"door": Door, "gate": Gate}.items():
            with pytest.raises(PluginError, match="no such door"):
                await here.admin.plugins.enable(name, factory=kind)
        await here.admin.plugins.enable("fence", factory=Fence)
        await wait_all_tasks_blocked()
    shown = [record for record in caplog.records if record.exc_info and record.name == "trunkline.plugins"]
    assert list(map(lines_of, shown)) == [["__init__", "helper"], ["start", "helper"], ["run", "helper"]]


class Files(Settings):
    path: OptionalPath = setting(None, "A file.")
    size: Whole = setting(1, "A number.", ge=0)


async def test_settings_by_key_are_those_of_a_model(tmp_path: Path) -> None:
    seen: list[Files] = []

    def reader(context: Context[Files]) -> None:
        seen.append(context.settings)

    async with room() as here:
        plugins = here.admin.plugins
        await plugins.enable("reader", {"size": 3}, reader)
        assert seen[0].size == 3
        await plugins.disable("reader")
        with pytest.raises(
            PluginError, match=r'plugins.reader.siez: unknown key; did you mean size\?\nplugins.reader.size: "x": acc'
        ):
            await plugins.enable("reader", {"siez": 3, "size": "x"}, reader)
        there, gone = tmp_path / "there", tmp_path / "gone"
        there.touch()
        for settings in ({"path": str(gone)}, Files(path=gone)):
            with pytest.raises(PluginError, match="plugins.reader.path: no file .*gone"):
                await plugins.enable("reader", settings, reader)  # type: ignore[arg-type]
        await plugins.enable("reader", Files(path=there), reader)
