"""Who asks the system for the time: corrections of its clock must not move what is stored."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: The broker, and what works in its process.
PACKAGES = [
    "actors",
    "broker",
    "client",
    "config",
    "events",
    "hooks",
    "mqtt",
    "nats",
    "plugins",
    "router",
    "store",
    "streams",
]
#: Functions of the modules `time` and `datetime` that give the calendar's time.
ASKING = {"time", "time_ns", "now", "utcnow", "today", "clock_gettime", "clock_gettime_ns"}
#: Modules that may ask, and why.
ALLOWED = {
    "broker/node/system_clock.py": "it is what all others are given",
    "events/merging.py": "it compares with the times of files",
    "events/delta.py": "Delta's commits have the calendar's time",
    "events/compaction.py": "it compares with times of rows, which follow the calendar",
    "events/positions.py": "for people who read the file",
    "nats/client/jetstream/object_records.py": "the time of an object that was just stored, for people",
    "nats/client/services/service.py": "a service says when it has begun, for people",
}
#: Modules that turn node time into the calendar's (`StoreClock.calendar`), and why that is not stored, or not to
#: measure how long something lasts.
CALENDAR = {
    "store/clock.py": "it is its own",
    "broker/node/parts.py": "alarms, the trace, certificates and `Context.wall`, for people",
    "broker/session/services.py": "the time of a message, for people",
    "broker/session/inbound.py": "the time of a message, for people",
    "broker/connection/handshake.py": "the time of a connection, for people",
    "broker/nats/login.py": "the same",
    "broker/nats/publishing.py": "the time of a message, for people",
    "broker/alive_note.py": "the note of both clocks",
    "broker/shards/routing.py": "the versions of retained messages",
    "broker/node/kept.py": "the note of both clocks",
    "broker/resharding/clocks.py": "the note of both clocks",
}
#: Plugins that use `Context.wall`, and why.
WALL = {
    "plugins/context.py": "it is defined there",
    "plugins/shipped/ban_exchange.py": "bans that end at a moment of the calendar",
    "plugins/shipped/bans.py": "to show bans",
    "plugins/shipped/delayed_publish.py": "messages may be delayed until a moment of the calendar",
    "plugins/shipped/http_auth.py": "an answer that ends at a moment of the calendar",
    "plugins/shipped/jwt.py": "tokens end at a moment of the calendar",
    "plugins/shipped/login.py": "logins end at a moment of the calendar",
    "plugins/shipped/validation.py": "for whoever gets the message",
    "plugins/shipped/webhook.py": "for whoever gets the event",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def asks(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time" and ASKING & {each.name for each in node.names}:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ASKING:
            of = node.func.value
            name = of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""
            if name in ("time", "datetime", "date"):
                return True
    return False


def has_attribute(tree: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(tree))


def test_nobody_else_asks_the_system_for_the_time() -> None:
    assert {path for path, tree in modules() if asks(tree)} == set(ALLOWED)


def test_nobody_else_takes_the_calendar_for_the_time_of_what_is_stored() -> None:
    assert {path for path, tree in modules() if has_attribute(tree, "calendar")} == set(CALENDAR)


def test_no_other_plugin_asks_for_the_calendar() -> None:
    found = {path for path, tree in modules() if path.startswith("plugins/") and has_attribute(tree, "wall")}
    assert found == set(WALL)


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.time()",
        "from time import time",
        "import datetime\ndatetime.datetime.now()",
        "from datetime import datetime, UTC\ndatetime.now(UTC)",
        "import time\ntime.clock_gettime(7)",
    ],
)
def test_whoever_asks_is_found(text: str) -> None:
    assert asks(ast.parse(text))
