"""What each kind of event is said to fill in, against what a broker writes. A new kind, or a new column of one, fails
here until it is declared, and until something in here makes it happen."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trio import sleep
from trio.testing import MockClock

from tests.broker.room import Room, room
from tests.conformance import raw
from tests.events.recordings import recorded
from trunkline.events.kinds import ALWAYS, FILLED, TABLES, columns_of, matching_kinds
from trunkline.events.plugin import EventsSettings
from trunkline.events.reader import EventLog
from trunkline.events.schema import COLUMNS, OWN_KINDS
from trunkline.hooks import ALLOW, DROP, ClientInfo, Success
from trunkline.hooks.points import POINTS
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import Connect

PAGE = Path(__file__).parents[2] / "docs" / "events.md"
#: Made by a reader.
STAND_INS = ("log.corrupt", "log.lost")


async def everything_happens(here: Room, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Every kind of event, each at least once with all that it can have."""
    import time

    def spoil(client: ClientInfo, message: Message) -> object:
        if message.topic == "spoil":
            message.publisher = 5  # type: ignore[assignment]
            return DROP
        return None

    def arrive(client: ClientInfo, packet: Connect) -> None:
        client.peer = ("192.0.2.1", 50_000)  # connections in memory come from nowhere

    here.broker.hooks.add("client.connect", arrive)
    here.broker.hooks.add("client.authenticate", lambda client, password: ALLOW)  # and so user names are true
    here.broker.hooks.add("client.enhanced_authenticate", lambda client, exchange: Success())
    here.broker.hooks.add("client.read_filter", lambda client, filter: filter.removesuffix("!"))
    here.broker.hooks.add(
        "client.subscribe",
        lambda client, request, properties: replace(request, filter=request.filter.removesuffix("!")),
    )
    here.broker.hooks.add("message.publish", spoil)
    here.admin.alarms.activate("early", "was on before")
    before = await here.stay("before", username="bea")
    await before.subscribe(("before/#", 1))
    settings = EventsSettings(
        path=folder, kinds=("*",), clients=("?*",), max_payload=100, user_properties=True, heartbeat=1, stats=2
    )
    await here.admin.plugins.enable("events", settings)
    await sleep(1)
    watcher = await here.stay("watcher", username="ann")
    await watcher.subscribe(("a/#!", 1))
    signed = here.wire()
    method = raw.authentication_method("any") + raw.authentication_data(b"x")
    await signed.send(raw.connect("signed", properties=method, username="eve"))
    await signed.expect_type(raw.CONNACK)
    publisher = await here.client("publisher", username="bob")
    await publisher.subscribe(("own/#!", raw.options(1, no_local=True)))
    await publisher.send(raw.unsubscribe(7, "own/#"))
    await publisher.expect_type(raw.UNSUBACK)
    told = raw.user_property("k", "v")
    await publisher.publish("a/1", b"x", qos=1, properties=told)
    await publisher.publish("nobody", b"x", qos=1, properties=told)
    await publisher.publish("spoil", b"x")
    for number in range(2, 6):  # wait, and are too many
        await publisher.publish(f"a/{number}", b"x", qos=1, properties=told)
    await sleep(5)
    await watcher.take_publish("a/1", b"x", qos=1)
    await here.stay("watcher", username="ann")
    await (await here.client("watcher", username="ann")).ping()
    here.admin.alarms.activate("hot", "too hot")
    here.admin.alarms.deactivate("hot")
    real = time.time
    patch.setattr("time.time", lambda: real() + 3600)
    await sleep(3)
    await publisher.disconnect()
    await publisher.expect_close()


def stand_ins(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows that a reader makes for what is damaged, and for what is gone."""
    ((node, extent),) = _log(folder).nodes().items()
    first, *_ = sorted(folder.rglob("*.arrows"))
    data = bytearray(first.read_bytes())
    data[-200] ^= 1
    first.write_bytes(data)
    for batch in _log(folder).read(node, 0, extent.end + 5, on_corrupt="skip", on_lost="skip"):
        yield from batch.to_pylist()


def _log(folder: Path) -> EventLog:
    log = EventLog(folder)
    log.refresh()
    return log


async def test_each_kind_fills_in_the_columns_that_are_declared(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = {"max_inflight": 1, "max_queue_length": 2}
    async with room(session=session, limits={"max_connections": 99}) as here:
        await everything_happens(here, tmp_path, monkeypatch)
    monkeypatch.undo()
    found: dict[str, set[str]] = {}
    rows = recorded(tmp_path)
    rows += [row for row in stand_ins(tmp_path) if row["kind"] in STAND_INS]
    for row in rows:
        filled = {name for name, value in row.items() if value is not None}
        assert filled >= set(ALWAYS)
        found.setdefault(row["kind"], set()).update(filled.difference(ALWAYS))
    declared = {kind: set(names) for kind, names in FILLED.items()}
    assert {kind: names for kind in declared if (names := declared[kind] - found.get(kind, set()))} == {}
    assert {kind: names for kind in found if (names := found[kind] - declared.get(kind, set()))} == {}
    assert found.keys() == declared.keys()


def test_every_kind_is_in_one_table() -> None:
    kinds = sorted(kind for table in TABLES.values() for kind in table.kinds)
    assert kinds == sorted([*(point.name for point in POINTS), *(kind.name for kind in OWN_KINDS)])
    for table in TABLES.values():
        assert all(matching_kinds([pattern]) for pattern in table.patterns)


def test_the_columns_of_kinds_are_in_order() -> None:
    assert [column.name for column in columns_of(["alarm.*", "node.clock"])] == [*ALWAYS, "reason", "name", "value"]
    assert columns_of(["*"]) == COLUMNS


def table_of_kinds() -> str:
    """As docs/events.md has it."""
    client, message = (set(FILLED[kind]) for kind in ("session.created", "message.acked"))
    message -= client
    lines = ["| kind | columns |", "|---|---|"]
    for table in TABLES.values():
        for kind in table.kinds:
            names = set(FILLED[kind])
            words = [f"*{word}*" for word, group in (("client", client), ("message", message)) if group <= names]
            for group in (client, message):
                names -= group if group <= names else set()
            words += [f"`{column.name}`" for column in COLUMNS if column.name in names]
            lines.append(f"| `{kind}` | {', '.join(words)} |")
    return "\n".join(lines)


def test_the_page_has_the_columns_of_each_kind_and_the_tables() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert table_of_kinds() in page
    lines = ["| table | what | columns |", "|---|---|---:|"]
    lines += [f"| `{table.name}` | {table.meaning} | {len(columns_of(table.kinds))} |" for table in TABLES.values()]
    assert "\n".join(lines) in page
