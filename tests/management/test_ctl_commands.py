"""The commands of `trunkline ctl` are the operations, each with all that it takes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import click
import pytest
from click.testing import CliRunner, Result

from trunkline.management import control_choice
from trunkline.management.cli import cli
from trunkline.management.control_client import ControlError, NoBroker
from trunkline.management.ctl_commands import commands
from trunkline.management.operations import OPERATIONS


class FakeClient:
    """Notes what is asked, and answers a page of five rows as often as it is asked for."""

    asked: ClassVar[list[tuple[str, dict[str, Any]]]]
    answer: ClassVar[Any]

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def call(self, operation: str, **arguments: Any) -> Any:
        self.asked.append((operation, arguments))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def pages(self, operation: str, **arguments: Any) -> Iterator[list[dict[str, Any]]]:
        for _ in range(3):
            self.asked.append((operation, dict(arguments)))
            yield [{"a": number} for number in range(5)]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeClient]:
    class Own(FakeClient):
        asked: ClassVar[list[tuple[str, dict[str, Any]]]] = []
        answer: ClassVar[Any] = {}

    monkeypatch.setattr(control_choice, "ControlClient", Own)
    return Own


def invoke(*arguments: str, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["ctl", "--socket", "somewhere", *arguments], input=text)


def leaves(level: Mapping[str, click.Command] | None = None) -> Iterator[tuple[str, click.Command]]:
    for name, command in (commands() if level is None else level).items():
        if isinstance(command, click.Group):
            for inner, leaf in leaves(command.commands):
                yield f"{name}.{inner}", leaf
        else:
            yield name, command


def test_every_operation_is_a_command_with_its_own_words() -> None:
    found = dict(leaves())
    assert set(found) == set(OPERATIONS)
    for name, command in found.items():
        operation = OPERATIONS[name]
        assert command.help == operation.doc
        taken = {parameter.name for parameter in command.params}
        cursors = {"after"} if name == "subscriptions.list" else set[str]()
        assert operation.arguments.keys() - cursors <= taken, name
        for argument, field in operation.arguments.items():
            for parameter in command.params:
                if parameter.name == argument:
                    assert parameter.required == field.is_required(), (name, argument)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["status"], {}),
        (["clients", "show", "a"], {"client_id": "a"}),
        (["clients", "subscribe", "a", "t/#", "--qos", "1"], {"client_id": "a", "filter": "t/#", "qos": 1}),
        (["clients", "subscribe", "a", "t/#"], {"client_id": "a", "filter": "t/#"}),
        (["publish", "t"], {"topic": "t", "retain": False}),
        (["publish", "t", "x", "--retain"], {"topic": "t", "payload": b"x", "retain": True}),
        (["publish", "t", "-"], {"topic": "t", "payload": b"in\n", "retain": False}),
        (["publish", "t", "", "--expiry", "5"], {"topic": "t", "payload": b"", "retain": False, "expiry": 5}),
        (
            ["publish", "t", "--user-property", "a=b", "--user-property", "c=d=e"],
            {"topic": "t", "retain": False, "user_properties": {"a": "b", "c": "d=e"}},
        ),
        (["plugins", "enable", "x"], {"name": "x"}),
        (["plugins", "enable", "x", "a=1", "b="], {"name": "x", "settings": {"a": "1", "b": ""}}),
        (["plugins", "call", "x", "y", "a=1"], {"name": "x", "command": "y", "arguments": {"a": "1"}}),
        (["bans", "add", "address", "::1", "--seconds", "1.5"], {"kind": "address", "who": "::1", "seconds": 1.5}),
        (["bans", "add", "address", "::1", "--seconds", "2h"], {"kind": "address", "who": "::1", "seconds": 7200.0}),
        (
            ["streams", "edit", "s", "--max-age", "1h", "--max-bytes", "64KiB", "--duplicate-window", "90"],
            {"name": "s", "max_age": 3600.0, "max_bytes": 65536, "duplicate_window": 90.0},
        ),
        (["streams", "consumers", "pause", "s", "c", "5m"], {"stream": "s", "consumer": "c", "seconds": 300.0}),
        (["publish", "t", "--expiry", "1m"], {"topic": "t", "retain": False, "expiry": 60}),
        (["log", "level"], {}),
        (["log", "level", "info"], {"level": "info"}),
        (["trace", "start", "--topic", "a", "--topic", "b"], {"topic": ["a", "b"]}),
        (["trace", "start"], {}),
    ],
)
def test_what_is_asked(arguments: list[str], asked: dict[str, Any], fake: type[FakeClient]) -> None:
    result = invoke(*arguments, text="in\n")
    assert result.exit_code == 0, result.output
    ((_, given),) = fake.asked
    assert given == asked


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["clients", "list"], {}),
        (["clients", "list", "--prefix", "a", "--after", "b"], {"prefix": "a", "after": "b"}),
        (["sessions", "list", "--connected"], {"connected": True}),
        (["sessions", "list", "--disconnected"], {"connected": False}),
        (["subscriptions", "list", "--client-id", "a"], {"client_id": "a"}),
        (["hooks", "list", "--after", "3"], {"after": 3}),
    ],
)
def test_listings(arguments: list[str], asked: dict[str, Any], fake: type[FakeClient]) -> None:
    result = invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert [given for _, given in fake.asked] == [asked] * 3
    assert len(result.output.splitlines()) == 15


@pytest.mark.parametrize(
    ("option", "text", "accepted"),
    [
        ("--max-age", "soon", 'seconds, or text such as "15s", "2h"'),
        ("--max-age", "-1", 'seconds, or text such as "15s", "2h"'),
        ("--max-bytes", "1.5", 'bytes, or text such as "64KiB", "1MiB"'),
        ("--max-bytes", "2h", 'bytes, or text such as "64KiB", "1MiB"'),
    ],
)
def test_quantities_that_are_none(option: str, text: str, accepted: str, fake: type[FakeClient]) -> None:
    result = invoke("streams", "edit", "s", option, text)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': {text!r}; accepted is {accepted}\n" in result.output
    assert not fake.asked


@pytest.mark.parametrize(("limit", "pages"), [(1, 1), (4, 1), (5, 1), (6, 2), (15, 3), (99, 3)])
def test_a_limit_ends_the_asking(limit: int, pages: int, fake: type[FakeClient]) -> None:
    result = invoke("clients", "list", "--limit", str(limit), "--json")
    assert [given for _, given in fake.asked] == [{"limit": limit}] * pages
    assert len(result.output.splitlines()) == min(limit, 15)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ControlError("not_found", "not there"), 1),
        (ControlError("refused", "no"), 1),
        (ControlError("failed", "crashed"), 1),
        (ControlError("too_large", "much"), 1),
        (ControlError("unwelcome", "full"), 1),
        (ControlError("bad_request", "what?"), 2),
        (NoBroker("gone"), 3),
    ],
)
def test_exit_codes(error: Exception, code: int, fake: type[FakeClient]) -> None:
    fake.answer = error
    result = invoke("status")
    assert (result.exit_code, result.output) == (code, f"trunkline: {error}\n")


def test_a_payload_to_a_file_and_to_standard_output(fake: type[FakeClient], tmp_path: Path) -> None:
    fake.answer = {"payload": b"\x00\xff", "topic": "t"}
    assert invoke("retained", "show", "t", "--payload", "-").stdout_bytes == b"\x00\xff"
    assert invoke("retained", "show", "t", "--payload", str(tmp_path / "x")).stdout_bytes == b""
    assert (tmp_path / "x").read_bytes() == b"\x00\xff"
    result = invoke("retained", "show", "t", "--payload", str(tmp_path / "no" / "x"))
    assert result.exit_code == 1
    assert "No such file" in result.output


def test_the_usual_place_is_looked_at(fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    result = CliRunner().invoke(cli, ["ctl", "--node", "nobodys", "status"])
    assert (result.exit_code, "no broker 'nobodys' runs here" in result.output) == (3, True)
    (tmp_path / "trunkline").mkdir()
    (tmp_path / "trunkline" / "nobodys.sock").touch()
    assert CliRunner().invoke(cli, ["ctl", "--node", "nobodys", "status"]).exit_code == 0


#: `config.show` prints nothing but the configuration.
ANSWERS = sorted(name for name, operation in OPERATIONS.items() if not operation.listing and name != "config.show")


@pytest.mark.parametrize("name", ANSWERS)
def test_what_an_answer_says_to_have_failed_is_an_error(name: str, fake: type[FakeClient]) -> None:
    fake.answer = {"failed": ["one: no", "two: no"]}
    given = [
        parameter.type.choices[0] if isinstance(parameter.type, click.Choice) else "1"
        for parameter in dict(leaves())[name].params
        if isinstance(parameter, click.Argument) and parameter.required
    ]
    result = invoke(*name.split("."), *given)
    assert (result.exit_code, result.stderr) == (1, "trunkline: one: no\ntrunkline: two: no\n")


@pytest.mark.parametrize(
    ("command", "option", "metavar"),
    [
        ("publish", "--expiry", "DURATION"),
        ("streams create", "--max-bytes", "SIZE"),
        ("streams create", "--max-age", "DURATION"),
        ("bans add", "--seconds", "DURATION"),
    ],
)
def test_how_a_number_with_a_unit_is_written(command: str, option: str, metavar: str) -> None:
    first, *rest = command.split()
    found = commands()[first]
    for name in rest:
        assert isinstance(found, click.Group)
        found = found.commands[name]
    (parameter,) = [each for each in found.params if option in each.opts]
    assert parameter.metavar == metavar
