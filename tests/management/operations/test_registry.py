"""What operations are made of: their arguments, checked, and their pages."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest

from tests.broker.room import room
from tests.management.asking import ask, refused
from tests.management.plugin_packages import installing
from trunkline import testing
from trunkline.broker.node.admin import Admin
from trunkline.config.units import without_none
from trunkline.management.operations.registry import (
    AT_ONCE,
    OPERATIONS,
    BadRequest,
    Elsewhere,
    Limit,
    NotFound,
    Operation,
    Page,
    Position,
    Refused,
    operation,
    page_at,
)
from trunkline.mqtt.errors import ProtocolError
from trunkline.plugins.errors import PluginError

NATS = "nats://127.0.0.1:0"


@pytest.fixture
def first_there(monkeypatch: pytest.MonkeyPatch) -> str:
    """How another worker says where the first one is to be asked."""
    control = SimpleNamespace(path=Path("/run/n.workers/1.sock"))
    monkeypatch.setattr(Admin, "control", control)
    return "at worker 0: ask it with --socket /run/n.workers/0.sock"


async def test_a_listener_of_nats_is_changed_at_the_first_worker(first_there: str) -> None:
    async with testing.broker(workers=2) as b:
        first, other = b._running.whole.shards  # pyright: ignore[reportPrivateUsage]

        async def ask(change: str, /, **arguments: object) -> Any:
            with pytest.raises(Elsewhere, match=f"^the clients of NATS are {first_there}$"):
                await OPERATIONS[f"listeners.{change}"].run(other, arguments)
            return await OPERATIONS[f"listeners.{change}"].run(first, arguments)

        assert (await ask("add", url=NATS)).state == "listening"
        listed: list[Any] = [await OPERATIONS["listeners.list"].run(each, {}) for each in (first, other)]
        assert [[row.name == NATS for row in page.rows] for page in listed] == [[False, True], [False]]
        told: list[Any] = [await OPERATIONS["status"].run(each, {}) for each in (first, other)]
        assert [len(status["listeners"]) for status in told] == [2, 1]
        for change, state in (("pause", "paused"), ("resume", "listening"), ("drain", "closed")):
            assert (await ask(change, name=NATS)).state == state
        assert await ask("remove", name=NATS) == {"removed": NATS}
        with pytest.raises(NotFound):
            await OPERATIONS["listeners.remove"].run(other, {"name": NATS})
        own: Any = await OPERATIONS["listeners.pause"].run(other, {"name": listed[1].rows[0].name})
        assert own.state == "paused"


async def test_a_plugin_of_the_node_is_started_at_the_first_worker(
    first_there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "def bell(context):\n    pass\n"
    async with testing.broker(workers=2) as b:
        with installing(tmp_path, monkeypatch) as install:
            install("bell_plugin", source, bell="bell")
            first, other = b._running.whole.shards  # pyright: ignore[reportPrivateUsage]
            for name in ("enable", "reload", "disable"):
                arguments: dict[str, object] = {"name": "bell"}
                if name == "enable":
                    arguments["settings"] = {"scope": "node"}
                assert await OPERATIONS[f"plugins.{name}"].run(first, arguments) is not None
                with pytest.raises(Elsewhere, match=f"^the plugin bell runs {first_there}$"):
                    await OPERATIONS[f"plugins.{name}"].run(other, arguments)
            assert await OPERATIONS["plugins.disable"].run(other, {"name": "bell"}) == {"disabled": "bell"}


async def test_what_the_first_worker_has_is_asked_for_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with testing.broker(workers=2) as b:
        await b.plugins.enable("bell", {"scope": "node"}, lambda context: context.command("ring", lambda: "rang"))
        first, other = b._running.whole.shards  # pyright: ignore[reportPrivateUsage]
        control = SimpleNamespace(path=Path("/run/n.workers/1.sock"))
        monkeypatch.setattr(type(other), "control", property(lambda admin: control if admin is other else None))
        there = "at worker 0: ask it with --socket /run/n.workers/0.sock"
        for each in OPERATIONS.values():
            if each.name.startswith("streams.") or "streams" in each.function.__code__.co_names:
                with pytest.raises(Refused, match=f"^the streams of this node are {there}$"):
                    await each.run(other, {})
        ring = {"name": "bell", "command": "ring"}
        with pytest.raises(Refused, match=f"^the plugin bell runs {there}$"):
            await OPERATIONS["plugins.call"].run(other, ring)
        assert await OPERATIONS["plugins.call"].run(first, ring) == "rang"
        assert await OPERATIONS["streams.list"].run(first, {}) == Page([], None)


@pytest.fixture
def probe() -> Iterator[Operation]:
    """An operation that takes one of each, and gives back what it got."""

    @operation("test.probe")
    def probe(
        broker: Admin,
        text: Annotated[str, "Text."],
        number: Annotated[int, "A number."] = 1,
        half: Annotated[float, "Half."] = 0.5,
        flag: Annotated[bool, "A flag."] = False,
        data: Annotated[bytes, "Bytes."] = b"",
        qos: Annotated[Literal[0, 1, 2] | None, "One of three."] = None,
        names: Annotated[list[str] | None, "Names."] = None,
        table: Annotated[dict[str, str] | None, "A table."] = None,
    ) -> dict[str, object]:
        """Say what came."""
        return {"text": text, "number": number, "half": half, "qos": qos, "names": names}

    yield OPERATIONS["test.probe"]
    del OPERATIONS["test.probe"]


def test_signature_and_docstring_are_all_there_is(probe: Operation) -> None:
    assert probe.doc == "Say what came."
    assert [name for name, field in probe.arguments.items() if field.is_required()] == ["text"]
    assert [without_none(field.annotation) for field in probe.arguments.values()] == [
        str,
        int,
        float,
        bool,
        bytes,
        Literal[0, 1, 2],
        list[str],
        dict[str, str],
    ]
    assert probe.arguments["number"].metadata == ["A number."]
    assert not probe.listing


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"text": 1}, "text: 1: accepted is text"),
        ({"text": None}, "text: None: accepted is text"),
        ({"text": "a", "number": True}, "number: True: accepted is a whole number"),
        ({"text": "a", "number": 1.0}, "number: 1.0: accepted is a whole number"),
        ({"text": "a", "half": "1"}, "half: '1': accepted is a number"),
        ({"text": "a", "flag": 1}, "flag: 1: accepted is true or false"),
        ({"text": "a", "data": "text"}, "data: 'text': accepted is bytes"),
        ({"text": "a", "qos": 3}, "qos: 3: accepted is 0 or 1 or 2"),
        ({"text": "a", "names": "bob"}, "names: 'bob': accepted is a list, each text"),
        ({"text": "a", "names": [1]}, "names: [1]: accepted is a list, each text"),
        ({"text": "a", "table": {"a": 1}}, "table: {'a': 1}: accepted is a table, each key text, each value text"),
        ({"txet": "a"}, "test.probe takes no argument 'txet'; did you mean text?"),
        ({"zzz": "a"}, "test.probe takes no argument 'zzz'; it takes text, number"),
        ({}, "test.probe needs text"),
        ({"number": 2}, "test.probe needs text"),
    ],
)
async def test_wrong_arguments(probe: Operation, arguments: dict[str, Any], text: str) -> None:
    async with room() as here:
        with pytest.raises(BadRequest) as caught:
            await probe.run(here.admin, arguments)
    assert str(caught.value).startswith(text)


async def test_right_arguments(probe: Operation) -> None:
    async with room() as here:
        assert await probe.run(
            here.admin, {"text": "a", "half": 1, "qos": 2, "names": ["b"], "table": {"c": "d"}, "data": b"e"}
        ) == {"text": "a", "number": 1, "half": 1, "qos": 2, "names": ["b"]}
        assert await probe.run(here.admin, {"text": "a", "qos": None})


async def test_unknown_operation() -> None:
    async with room() as here:
        assert await refused(here, NotFound, "client.list") == "no operation 'client.list'; did you mean clients.list?"
        assert "zzz" in await refused(here, NotFound, "zzz")


@pytest.mark.parametrize(
    ("error", "becomes", "text"),
    [
        (ProtocolError("no topic"), BadRequest, "no topic"),
        (PluginError(["one", "two"]), Refused, "one; two"),
    ],
)
async def test_errors_of_the_broker_become_answers(error: Exception, becomes: Any, text: str) -> None:
    @operation("test.fails")
    async def fail(broker: Admin) -> None:
        raise error

    try:
        async with room() as here:
            assert await refused(here, becomes, "test.fails") == text
    finally:
        del OPERATIONS["test.fails"]


def test_every_operation_says_what_it_is() -> None:
    for name, each in OPERATIONS.items():
        assert each.doc.endswith("."), name
        docs = [doc for field in each.arguments.values() for doc in field.metadata if isinstance(doc, str)]
        assert len(docs) == len(each.arguments), name
        assert all(doc.endswith(".") for doc in docs), name
        assert not each.listing or {"after", "limit"} <= each.arguments.keys(), name


async def test_a_page_is_never_long() -> None:
    @operation("test.list")
    def numbers(broker: Admin, after: Position = 0, limit: Limit = AT_ONCE) -> Page[int]:
        """Numbers."""
        return page_at(range(2000), after, limit)

    try:
        async with room() as here:
            assert (await ask(here, "test.list", after=700, limit=1000)).rows == list(range(700, 1200))
            wrong = await refused(here, BadRequest, "test.list", after=-1)
            assert wrong == "after: -1: accepted is a whole number, 0 or more"
    finally:
        del OPERATIONS["test.list"]


async def test_limits_of_pages() -> None:
    async with room() as here:
        for name, each in OPERATIONS.items():
            if each.listing:
                needed: dict[str, Any] = {a: "a" * 32 for a, field in each.arguments.items() if field.is_required()}
                if name != "bans.list":
                    assert "limit: 0" in await refused(here, BadRequest, name, limit=0, **needed), name


def test_pages_of_a_short_list() -> None:
    assert page_at("abcde", 0, 2) == Page(["a", "b"], 2)
    assert page_at("abcde", 2, 3) == Page(["c", "d", "e"], None)
    assert page_at("abcde", 7, 3) == Page([], None)


def test_a_shorter_page_goes_on_where_it_ends() -> None:
    rows: list[dict[str, object]] = [{"client_id": f"c{n}", "filter": "t"} for n in range(4)]
    page: Page[Any] = Page([type("Row", (), row)() for row in rows], ["c3", "t"])
    by_key = OPERATIONS["subscriptions.list"]
    assert by_key.first_of(page, 4, {}) is page
    assert by_key.first_of(page, 2, {}).next == ["c1", "t"]
    by_place = OPERATIONS["hooks.list"]
    assert by_place.first_of(Page([1, 2, 3], None), 2, {}) == Page([1, 2], 2)
    assert by_place.first_of(Page([1, 2, 3], None), 2, {"after": 5}) == Page([1, 2], 7)
