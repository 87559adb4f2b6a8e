"""Whatever properties a packet has, they survive every form that they take on their way: stored, restarted, asked for
by operators, told to plugins, journaled and recorded. What the code has of each is compared with what is tried here, so
that a new form has to join."""

import ast
import dataclasses
import inspect
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args, get_type_hints

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.broker.disk import Disk, Life
from tests.broker.room import room
from tests.conformance import raw
from tests.mqtt.exchange import decoder_for
from tests.mqtt.property_values import blocks, decoded
from tests.wire import Wire
from trunkline.broker import views
from trunkline.broker.node.admin import Admin
from trunkline.hooks import Hooks
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.points import POINTS, Point
from trunkline.management.control_json import from_json, to_json
from trunkline.management.ctl_output import print_result
from trunkline.management.journal_file import Journal
from trunkline.management.journal_view import as_records, as_text
from trunkline.management.operations.registry import OPERATIONS, Page
from trunkline.mqtt.message import Message
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.packets import Publish
from trunkline.mqtt.plain import plain
from trunkline.mqtt.versions import Version
from trunkline.plugins.shipped.webhook_events import EventWriter
from trunkline.store import Space

pytest.importorskip("pyarrow")
from trunkline.events.privacy import Privacy
from trunkline.events.rows import Converter
from trunkline.events.schema import STORED

ROOT = Path(__file__).parents[2]
DUE = 3600
DELAY = raw.will_delay(50_000)
STREAM = {"name": "kept", "filters": ["s/#"]}


@dataclasses.dataclass(frozen=True)
class Sent:
    """The properties of each packet."""

    connect: bytes
    will: bytes
    publish: bytes
    subscribe: bytes
    unsubscribe: bytes
    disconnect: bytes
    acknowledgement: bytes


#: Those that have the test's client behave in another way.
ELSEWHERE = ("session_expiry_interval", "authentication_method", "authentication_data", "receive_maximum")
SENT = st.builds(
    Sent,
    blocks(PacketType.CONNECT, *ELSEWHERE),
    blocks(PacketType.WILL, "will_delay_interval").map(lambda block: block + DELAY),  # it waits in the session
    blocks(PacketType.PUBLISH, "topic_alias"),
    blocks(PacketType.SUBSCRIBE),
    blocks(PacketType.UNSUBSCRIBE),
    blocks(PacketType.DISCONNECT, *ELSEWHERE),
    blocks(PacketType.PUBACK),
)
PAIR = raw.user_property("k", "v")
PAIRS = Sent(PAIR, PAIR + DELAY, PAIR, PAIR, PAIR, PAIR, PAIR)


def published(block: bytes) -> dict[str, Any]:
    return plain(decoded(block, PacketType.PUBLISH))  # type: ignore[no-any-return]


def of_message(properties: Any) -> dict[str, Any]:
    """Without what a delivery adds, and the seconds that are left."""
    return {name: value for name, value in plain(properties).items() if name != "subscription_identifier"}


# What clients send


async def play(connect: Callable[[], Awaitable[Wire]], sent: Sent) -> None:
    """One client stays with its will and an unacknowledged message, one is away, one publishes."""
    stays = sent.connect + raw.session_expiry(100_000)
    will = raw.Will("gone", properties=sent.will)
    window = await connect()
    await window.connect("window", clean=False, properties=stays, will=will)
    passing = await connect()
    await passing.connect("passing", will=raw.Will("passed", retain=True, properties=sent.will))
    away = await connect()
    await away.connect("away", clean=False, properties=stays)
    for wire in (window, away):
        await wire.subscribe(("t/#", 1), properties=sent.subscribe)
    await away.subscribe(("u", 1))
    await away.send(raw.unsubscribe(2, "u", properties=sent.unsubscribe))
    await away.expect_type(raw.UNSUBACK)
    await away.disconnect(0, sent.disconnect)
    pub = await connect()
    await pub.connect("pub")
    await pub.publish("t/r", b"x", qos=1, retain=True, properties=sent.publish)
    await pub.publish("t/2", b"x", qos=2, properties=sent.publish)
    ids = range(1, 4)
    await pub.send(*[raw.publish("t/b", b"x", qos=1, packet_id=n, properties=sent.publish) for n in ids])
    for _ in ids:
        await pub.expect_type(raw.PUBACK)
    await pub.publish("s/1", b"x", qos=1, properties=sent.publish)
    await pub.publish(f"$delayed/{DUE}/d", b"x", qos=1, properties=sent.publish)
    first = await window.expect_type(raw.PUBLISH)
    await window.send(raw.ack(raw.PUBACK, first.packet_id, 0, sent.acknowledgement))


# What is stored


async def from_the_head(life: Life) -> list[Any]:
    await life.wire()  # the session wakes when somebody asks for it
    session = life.node.sessions.get("window")
    assert session is not None
    will = session.session.will
    assert will is not None
    return [will.properties]


async def from_wills(life: Life) -> list[Any]:
    """Of a client whose session ended with the process: its will was published at the start."""
    found = life.node.retained.get("passed", trio.current_time())
    assert found is not None
    return [found.properties]


async def from_the_queue(life: Life) -> list[Any]:
    """Through window and queue, to a client that has come again."""
    found: list[Any] = []
    for name, count in (("away", 5), ("window", 4)):
        wire, _ = await life.stay(name)
        while len(found) < count if name == "away" else len(found) < 9:
            packet = await wire.receive()
            if packet.type == raw.PUBLISH:
                found.append(received(packet))
                await wire.send(raw.ack(raw.PUBACK, packet.packet_id))
    return found


def received(packet: raw.Received) -> dict[str, Any]:
    [read] = decoder_for(Version.V5, server=False).feed(packet.data)
    assert isinstance(read, Publish)
    return of_message(read.properties)


async def from_retained(life: Life) -> list[Any]:
    found = life.node.retained.get("t/r", trio.current_time())
    assert found is not None
    return [found.properties]


async def from_the_stream(life: Life) -> list[Any]:
    return [(await life.node.streams.get("kept", 1)).message.properties]


async def from_the_plugin(life: Life) -> list[Any]:
    wire = await life.wire()
    await wire.connect("w")
    await wire.subscribe(("d", 0))
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.jump(DUE)
    return [received(await wire.expect_type(raw.PUBLISH))]


#: By the space that holds them, where they come back from. The rest of the store holds nothing of a packet but topics
#: and filters.
STORED_IN: dict[str, Callable[[Life], Awaitable[list[Any]]]] = {
    "sessions": from_the_head,
    "wills": from_wills,
    "messages": from_the_queue,
    "retained": from_retained,
    "stream-blocks": from_the_stream,
    "plugins": from_the_plugin,
}
WITHOUT_PROPERTIES = {"subscriptions", "queues", "positions", "windows", "filters", "entries", "node", "references"} | {
    *("streams", "stream-deleted", "stream-topics", "stream-deadlines", "consumers")
}
#: Of a node of several shards, where `tests/broker/shards/test_bursts.py` tries them.
OF_SHARDS = {"links", "outbox", "spreading"}


def test_every_space_of_the_store_is_tried() -> None:
    found = {
        node.args[0].value
        for package in ("broker", "plugins", "streams")
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "Space"
        and isinstance(node.args[0], ast.Constant)
    }
    assert found == STORED_IN.keys() | WITHOUT_PROPERTIES | OF_SHARDS


@settings(max_examples=5)
@example(PAIRS)
@given(SENT)
def test_what_is_stored_comes_back(sent: Sent) -> None:
    trio.run(_stored, sent, clock=MockClock(rate=1))


async def _stored(sent: Sent) -> None:
    disk = Disk()
    seen = Observed()
    async with disk.broker(hooks=seen.hooks, streams=[STREAM]) as life:
        await life.node.plugins.enable("delayed-publish")
        await play(life.wire, sent)
        await asked(life.admin, sent)
    for space in STORED_IN:
        assert disk.engine.count(Space(space)), space
    expected = published(sent.publish)
    will = plain(decoded(sent.will, PacketType.WILL))
    wanted = {"sessions": will, "wills": {name: will[name] for name in will if name != "will_delay_interval"}}
    async with disk.broker(streams=[STREAM]) as life:
        await life.node.plugins.enable("delayed-publish")
        for space, read in STORED_IN.items():
            for properties in await read(life):
                assert same(properties, wanted.get(space, expected)), space
    seen.tell(sent)


def same(found: Any, wanted: dict[str, Any]) -> bool:
    """An expiry interval shrinks while the message waits."""
    found, wanted = of_message(found), dict(wanted)
    left, given = found.pop("message_expiry_interval", 0), wanted.pop("message_expiry_interval", 0)
    return bool(found == wanted and given - DUE - 60 <= left <= given)


# What operators ask for

#: Operations that show messages, and what they are asked.
SHOWN_BY: dict[str, dict[str, Any]] = {
    "retained.list": {},
    "retained.show": {"topic": "t/r"},
    "streams.get": {"name": "kept"},
}


def test_every_operation_that_shows_messages_is_tried() -> None:
    found = {name for name, operation in OPERATIONS.items() if shows_messages(operation.function)}
    assert found == SHOWN_BY.keys()


def shows_messages(function: Callable[..., Any]) -> bool:
    known = vars(inspect.getmodule(function)) | vars(views)
    returned = get_type_hints(function, known)["return"]
    rows = [each for each in (returned, *get_args(returned)) if dataclasses.is_dataclass(each)]
    return any(field.name == "properties" for row in rows for field in dataclasses.fields(row))


async def asked(node: Admin, sent: Sent) -> None:
    for name, arguments in SHOWN_BY.items():
        result = await OPERATIONS[name].run(node, arguments)
        answer = from_json(to_json({"result": result}).encode())["result"]
        rows = answer["rows"] if isinstance(result, Page) else [answer]
        for as_json in (False, True):
            print_result(name, rows, as_json)
        [shown] = [row for row in rows if row["topic"] in ("t/r", "s/1")]
        assert of_message(shown["properties"]) == published(sent.publish)


# What plugins are told


class Observed:
    """What all hook points have given."""

    def __init__(self) -> None:
        self.hooks = Hooks()
        self._seen: list[tuple[Point, tuple[Any, ...]]] = []
        for point in POINTS:
            self.hooks.add(point.name, self._watcher(point), priority=-10_000)

    def _watcher(self, point: Point) -> Callable[..., None]:
        def watch(*values: Any) -> None:
            self._seen.append((point, values))

        return watch

    def tell(self, sent: Sent) -> None:
        writer, told = EventWriter(), list[Any]()
        for point, values in self._seen:
            content = json.loads(writer.write(point, values, "n", 0.0))
            if point.name == "message.publish" and content["topic"] == "t/r":
                told.append(content["properties"])
        assert told
        pairs = published(sent.publish).get("user_property")
        assert all(properties.get("user_property") == pairs for properties in told)


@settings(max_examples=50)
@given(blocks(PacketType.PUBLISH, "topic_alias"))
def test_what_is_recorded(block: bytes) -> None:
    properties = decoded(block, PacketType.PUBLISH)
    message = Message("t", b"x", properties=properties)
    converter = Converter(["message.publish"], STORED, Privacy(), 100, 1)
    [row] = converter.convert([(0, 1.0, ClientInfo("c"), message, None)]).to_pylist()
    pairs = [(each["key"], each["value"]) for each in row["user_properties"]]
    assert pairs == list(properties.get("user_property", ()))


# What tests see


@settings(max_examples=5)
@example(PAIRS)
@given(SENT)
def test_the_testing_kit_restarts_and_journals(sent: Sent) -> None:
    with TemporaryDirectory() as folder:
        trio.run(_restarted, sent, Path(folder) / "journal", clock=MockClock(rate=1))


async def _restarted(sent: Sent, path: Path) -> None:
    async with room(plugins={"delayed-publish": {}}) as here:

        async def connect() -> Wire:
            return here.wire()

        with here.broker.record(path):
            await play(connect, sent)
            await here.broker.restart()
        will = here.session("window").session.will
        assert will is not None
        assert same(will.properties, plain(decoded(sent.will, PacketType.WILL)))
    lines = list(as_text(Journal(path)))
    assert lines
    records = [json.loads(json.dumps(record)) for record in as_records(Journal(path))]
    [sent_one] = [each for each in records if each.get("topic") == "t/r" and each["from_client"]]
    assert sent_one.get("properties", {}).get("user_property") == published(sent.publish).get("user_property")


def test_nothing_is_made_text_in_silence() -> None:
    """A value that JSON does not know is a mistake, not its `str`."""
    hidden = re.compile(r"\bdefault=(?:str|repr)\b")
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for package in sorted((ROOT / "src" / "trunkline").iterdir())
        for file in sorted(package.resolve().rglob("*.py"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if hidden.search(line)
    ]
    assert not found
