"""Plugins started, stopped and asked while the broker runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.management.asking import all_rows, ask, refused
from tests.management.plugin_packages import installing
from trunkline.broker.node.opening import open_node
from trunkline.config.reader import load
from trunkline.management.operations import find
from trunkline.management.operations.registry import BadRequest, NotFound, Refused
from trunkline.plugins.finding import settings_model

SOURCE = """
from dataclasses import replace
from pydantic import SecretStr
from trunkline.config.units import Duration, Flag, Network, OptionalPath, Secret, Size, Text
from trunkline.plugins import Context, Settings, hook, setting

class Own(Settings):
    mark: Text = setting("!", "What goes behind a payload.", max_length=3)
    password: Secret = setting(SecretStr(""), "Nobody's business.")
    wait: Duration = setting(1.0, "Seconds.")
    size: Size = setting(1, "Bytes.")
    file: OptionalPath = setting(None, "A file.")
    nets: tuple[Network, ...] = setting((), "Networks.")

class Marking:
    def __init__(self, context: Context[Own]) -> None:
        self.settings = context.settings
        self.marked = context.counter("marked", "Messages marked.")
        context.command("settings", self.show)
        context.command("fail", self.fail)
        context.command("echo", lambda word: word)

    @hook("message.publish")
    def mark(self, client, message):
        self.marked.add()
        return replace(message, payload=message.payload + self.settings.mark.encode())

    def show(self) -> dict:
        own = self.settings
        return {"mark": own.mark, "password": own.password.get_secret_value(), "wait": own.wait, "size": own.size,
                "file": own.file and str(own.file), "nets": [str(net) for net in own.nets]}

    def fail(self, how: str) -> None:
        raise {"value": ValueError, "lookup": LookupError}[how]("nothing like it")
"""


@pytest.fixture
def marking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with installing(tmp_path, monkeypatch) as install:
        install("marking_plugin", SOURCE, marking="Marking")
        yield


def status(rows: list[Any], name: str = "marking") -> str:
    (row,) = [row for row in rows if row.name == name]
    return str(row.status)


@pytest.mark.usefixtures("marking")
async def test_enable_and_disable_show_in_the_lists() -> None:
    async with room() as here:
        assert status(await all_rows(here, "plugins.list", limit=3)) == "stopped"
        assert await ask(here, "plugins.enable", name="marking") == {"enabled": "marking"}
        assert status(await all_rows(here, "plugins.list")) == "running"
        hooks = await all_rows(here, "hooks.list")
        assert [row.plugin for row in hooks if row.point == "message.publish"] == ["marking"]
        assert ("plugins.marking.marked", "Messages marked.") in [
            (row.name, row.meaning) for row in await all_rows(here, "metrics")
        ]
        assert "runs already" in await refused(here, Refused, "plugins.enable", name="marking")
        assert await ask(here, "plugins.disable", name="marking") == {"disabled": "marking"}
        assert not here.admin.hooks.message_publish
        assert "did you mean marking" in await refused(here, Refused, "plugins.enable", name="markin")
        assert "no plugin 'other'" in await refused(here, Refused, "plugins.disable", name="other")


GIVEN = {"mark": "?", "password": "secret", "wait": "2m", "size": "1KiB", "nets": "10.0.0.0/8,::1"}
RIGHT = {"mark": "?", "password": "secret", "wait": 120.0, "size": 1024, "nets": ["10.0.0.0/8", "::1/128"]}


@pytest.mark.usefixtures("marking")
async def test_settings_as_text_are_checked_as_the_configurations() -> None:
    async with room() as here:
        text = await refused(here, BadRequest, "plugins.enable", name="marking", settings={"mark": "????", "size": "x"})
        assert "argument: plugins.marking.mark: " in text
        assert 'argument: plugins.marking.size: "x": accepted is bytes, or text such as' in text
        text = await refused(here, BadRequest, "plugins.enable", name="marking", settings={"marc": "?"})
        assert text == "argument: plugins.marking.marc: unknown key; did you mean mark?"
        assert "no plugin 'x' is installed" in await refused(
            here, Refused, "plugins.enable", name="x", settings={"a": "b"}
        )
        await ask(here, "plugins.enable", name="marking", settings=GIVEN)
        assert await ask(here, "plugins.call", name="marking", command="settings") == {**RIGHT, "file": None}


def configure(path: Path, /, **keys: str) -> None:
    lines = [
        'listeners = ["tcp://127.0.0.1:0"]',
        "[control]",
        "enabled = false",
        "[plugins.marking]",
        "enabled = false",
    ]
    path.write_text("\n".join([*lines, *(f"{key} = {value}" for key, value in keys.items())]))


@pytest.mark.usefixtures("marking")
async def test_settings_come_from_the_file_as_it_is_now(tmp_path: Path) -> None:
    file, other = tmp_path / "broker.toml", tmp_path / "other"
    other.touch()
    configure(file, mark='"1"', password='"p"', file='"other"', nets='["10.0.0.0/8"]')

    async def call(node: Any, operation: str, **arguments: object) -> Any:
        return await find(operation).run(node, {"name": "marking", **arguments})

    async with open_node(
        load(file, find_plugin=settings_model).config, read=lambda: load(file, find_plugin=settings_model).config
    ) as node:
        await call(node, "plugins.enable")
        first = await call(node, "plugins.call", command="settings")
        assert (first["mark"], first["password"], first["file"]) == ("1", "p", str(other))
        configure(file, mark='"2"', password='"q"', nets='["10.0.0.0/8"]')
        await call(node, "plugins.reload")
        assert (await call(node, "plugins.call", command="settings"))["mark"] == "2"
        await call(node, "plugins.reload", settings={"mark": "3"})
        third = await call(node, "plugins.call", command="settings")
        assert (third["mark"], third["password"], third["nets"]) == ("3", "q", ["10.0.0.0/8"])
        configure(file, mark="7")
        with pytest.raises(Refused, match=r"broker.toml: plugins.marking.mark: 7"):
            await call(node, "plugins.reload")
        assert status(node.plugins.rows()) == "running"  # nothing has been stopped for it


@pytest.mark.usefixtures("marking")
async def test_reload_reads_keys_that_only_the_new_code_knows(tmp_path: Path) -> None:
    file, module = tmp_path / "broker.toml", tmp_path / "marking_plugin.py"
    configure(file, mark='"1"')
    async with open_node(
        load(file, find_plugin=settings_model).config, read=lambda: load(file, find_plugin=settings_model).config
    ) as node:
        await find("plugins.enable").run(node, {"name": "marking"})
        configure(file, brand='"2"')
        module.write_text(SOURCE.replace("mark: Text", "brand: Text").replace("own.mark", "own.brand"))
        await find("plugins.reload").run(node, {"name": "marking"})
        shown: Any = await find("plugins.call").run(node, {"name": "marking", "command": "settings"})
        assert shown["mark"] == "2"


@pytest.mark.usefixtures("marking")
async def test_a_broker_inside_another_process_goes_by_what_it_was_given() -> None:
    async with room(plugins={"marking": {"enabled": False, "mark": "7"}}) as here:
        await ask(here, "plugins.enable", name="marking", settings={"wait": "5s"})
        shown = await ask(here, "plugins.call", name="marking", command="settings")
        assert (shown["mark"], shown["wait"]) == ("7", 5.0)


@pytest.mark.usefixtures("marking")
async def test_commands_of_a_plugin() -> None:
    async with room() as here:
        assert "does not run" in await refused(here, Refused, "plugins.call", name="marking", command="echo")
        await ask(here, "plugins.enable", name="marking")
        assert await ask(here, "plugins.call", name="marking", command="echo", arguments={"word": "a"}) == "a"
        call: dict[str, Any] = {"name": "marking", "command": "fail"}
        assert await refused(here, BadRequest, "plugins.call", **call, arguments={"how": "value"}) == "nothing like it"
        assert await refused(here, NotFound, "plugins.call", **call, arguments={"how": "lookup"}) == "nothing like it"
        assert "how" in await refused(here, BadRequest, "plugins.call", **call)
        text = await refused(here, NotFound, "plugins.call", name="marking", command="ekko")
        assert text == "the plugin marking has no command 'ekko'; it has echo, fail, settings"


@pytest.mark.usefixtures("marking")
async def test_plugins_come_and_go_while_qos_1_flows_and_no_message_is_lost() -> None:
    async with room() as here:
        sender, taker = await here.client("sender"), await here.client("taker")
        await taker.subscribe(("t", 1))
        sent, got = 0, list[bytes]()
        changing = True

        async def send() -> None:
            nonlocal sent
            while changing:
                sent += 1
                await sender.publish("t", b"%d" % sent, qos=1)

        async def take() -> None:
            while True:
                packet = await taker.receive()
                assert packet.type == raw.PUBLISH
                got.append(packet.payload)
                await taker.acknowledge(packet)

        async def until(count: int) -> None:
            while len(got) < count:
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as taking:
            taking.start_soon(take)
            async with trio.open_nursery() as sending:
                sending.start_soon(send)
                for name in ("enable", "reload", "disable") * 3:
                    await ask(here, f"plugins.{name}", name="marking")
                    await until(len(got) + 20)
                changing = False
            await until(sent)
            taking.cancel_scope.cancel()
        assert [int(payload.rstrip(b"!")) for payload in got] == list(range(1, sent + 1))
        marked = sum(payload.endswith(b"!") for payload in got)
    assert 0 < marked < sent


async def bans(here: Room, **arguments: object) -> list[tuple[str, str]]:
    return [(row["kind"], row["who"]) for row in await all_rows(here, "bans.list", **arguments)]


async def test_bans() -> None:
    async with room() as here:
        assert await refused(here, Refused, "bans.list") == (
            "bans need the plugin bans, which does not run: enable it first"
        )
        await ask(here, "plugins.enable", name="bans", settings={"max_bans": "600"})
        a = await here.client("a")
        await ask(here, "bans.add", kind="client_id", who="a", seconds=1_000_000.0, reason="rude")
        await a.expect_disconnect(0x98)
        await ask(here, "bans.add", kind="address", who="10.0.0.0/8")
        assert await bans(here) == [("address", "10.0.0.0/8"), ("client_id", "a")]
        assert await bans(here, limit=1) == await bans(here)
        (row,) = (await ask(here, "bans.list", after="b")).rows
        assert (row["reason"], bool(row["until"])) == ("rude", True)
        await ask(here, "bans.remove", kind="client_id", who="a")
        await here.client("a")
        assert "client_id b" in await refused(here, NotFound, "bans.remove", kind="client_id", who="b")
        assert 'accepted is "client_id" or "username"' in await refused(
            here, BadRequest, "bans.add", kind="ip", who="1"
        )
        assert "'10.0.0.0.0'" in await refused(here, BadRequest, "bans.add", kind="address", who="10.0.0.0.0")
        assert "seconds" in await refused(here, BadRequest, "bans.add", kind="client_id", who="c", seconds=-1.0)
        for number in range(590):
            await ask(here, "bans.add", kind="username", who=f"{number:03}")
        assert len(await bans(here)) == 591
