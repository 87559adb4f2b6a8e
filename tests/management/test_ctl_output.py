"""What `trunkline ctl` prints, and what nobody can make it print."""

import json
import re
import sys
from typing import Any

import pytest

from trunkline.config.reader import Loaded, from_mapping
from trunkline.management.config_view import as_toml
from trunkline.management.ctl_output import COLUMNS, DISPENSABLE, print_result, print_rows, print_toml
from trunkline.management.operations import OPERATIONS


def out(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_a_plain_table_is_aligned_and_streams(capsys: pytest.CaptureFixture[str]) -> None:
    printed: list[list[str]] = []

    def pages() -> Any:
        yield [{"a": "x", "b": 1}, {"a": "long", "b": None}]
        printed.append(out(capsys))
        yield [{"a": "longer than that", "b": True}, {"a": "", "b": False}]

    print_rows("none.such", pages(), as_json=False)
    assert printed == [["a     b", "x     1", "long  -"]]
    assert out(capsys) == ["longer than that  yes", "-                 no"]


def test_json_is_a_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("none.such", [[{"a": "\x1b[2J\u2028é\x9b", "b": {"c": b"x"}}], [{"a": 1.5, "b": [None]}]], as_json=True)
    first, second = out(capsys)
    assert first.isascii()
    assert json.loads(first) == {"a": "\x1b[2J\u2028é\x9b", "b": {"c": "x", "c_encoding": "text"}}
    assert json.loads(second) == {"a": 1.5, "b": [None]}


def test_nothing_is_said_to_people_and_not_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("none.such", [], as_json=False)
    assert capsys.readouterr() == ("", "none\n")
    print_rows("none.such", [], as_json=True)
    assert capsys.readouterr() == ("", "")


def test_nobodys_name_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]0;owned\x07\r\n\u202ename\x9b2J"
    print_rows("none.such", [[{"client_id": evil, "payload": evil.encode()}]], as_json=False)
    print_result("none.such", {evil: evil, "list": [evil], "table": {"inner": {"deep": evil}}}, as_json=False)
    text = capsys.readouterr().out
    assert not set(text) & {"\x1b", "\x07", "\r", "\u202e", "\x9b"}
    assert text.count("\n") == 5


def test_a_table_at_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_rows("none.such", [[{"name": "[bold]x[/bold]", "text": "word " * 20 + "end"}]], as_json=False)
    lines = [re.sub(r"\x1b\[\d*m", "", line) for line in out(capsys)]
    assert lines[0].split() == ["name", "text"]
    assert lines[1].startswith("[bold]x[/bold]")
    assert len(lines) > 3  # folded, and not cut off
    assert sum(line.count("word") for line in lines) == 20
    assert "end" in lines[-1]


CLIENT = {
    "client_id": "sensor-in-the-north-hall-17",
    "username": "north-hall",
    "peer": "[2001:db8::17]:54321",
    "listener": "tcp://0.0.0.0:1883",
    "version": "3.1.1",
    "connected_at": 1_700_000_000.0,
    "subscriptions": 12,
    "queued": 10_000,
    "inflight": 20,
}
TRACE = {
    "guid": "0123456789abcdef" * 2,
    "topic": "plant/north-hall/17/temperature",
    "publisher": "sensor-in-the-north-hall-17",
    "qos": 1,
    "published_at": 1_700_000_000.0,
    "state": "completed",
    "reason": "",
    "receivers": 1,
    "delivered": 1,
    "acked": 1,
    "dropped": 0,
}


@pytest.mark.parametrize(("name", "row"), [("clients.list", CLIENT), ("trace.list", TRACE)])
@pytest.mark.parametrize("width", [20, 60, 80, 100, 120, 200])
def test_no_width_breaks_a_word(
    name: str, row: dict[str, Any], width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    print_rows(name, [[row]], as_json=False)
    said = capsys.readouterr()
    lines = [re.sub(r"\x1b\[\d*m", "", line).split() for line in said.out.splitlines()]
    shown = lines[0]
    first = shown[0]
    if width > len(str(row[first])):
        assert len(lines) == 2
        assert lines[1][0] == row[first]
        assert len(lines[1]) == len(shown)
    left_out = re.findall(r"has (.*) too\)", said.err)
    assert sorted([*shown, *", ".join(left_out).split(", ")]) == sorted(
        [*COLUMNS[name].split(), *([] if left_out else [""])]
    )
    if width == 80:
        assert {"client_id", "username", "peer"} <= set(shown) or {"guid", "topic"} <= set(shown)


@pytest.mark.parametrize(
    ("payload", "size", "shown", "plain", "encoding"),
    [
        (b"", 0, "-", "", "text"),
        (b"on", 2, "on", "on", "text"),
        ("grüß".encode(), 6, "grüß", "grüß", "text"),
        (b"a\tb\r\nc", 6, r"a\tb\r\nc", "a\tb\r\nc", "text"),
        (b"\x00\xff", 2, "0x00ff", "AP8=", "base64"),
        (b"a\x1bb", 3, "0x611b62", "YRti", "base64"),
        ("ü".encode()[:1], 1, "0xc3", "ww==", "base64"),
        (b"ab" + "ü".encode()[:1], 4, "ab…", "ab", "text"),
        (b"\xff" * 2, 9, "0xffff…", "//8=", "base64"),
    ],
)
def test_payloads(
    payload: bytes, size: int, shown: str, plain: str, encoding: str, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = {"payload": payload, "size": size}
    print_result("retained.show", row, as_json=False)
    assert out(capsys)[0] == f"payload  {shown}"
    print_result("retained.show", row, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"payload": plain, "payload_encoding": encoding, "size": size}


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("connected_at", 0, "1970-01-01T00:00:00Z"),
        ("timestamp", 1_700_000_000.9, "2023-11-14T22:13:20Z"),
        ("since", None, "-"),
        ("uptime", 5.0, "5"),
        ("uptime", 5.256, "5.26"),
        ("expires_in", 100.0, "100"),
        ("names", ["a", "b"], "a, b"),
        ("names", [], "-"),
        ("table", {}, "-"),
        (
            "steps",
            [{"word": "routed", "reason": ""}, {"word": "dropped", "reason": "expired"}],
            "routed, dropped (expired)",
        ),
        ("pairs", [["k", "v"]], "k, v"),
    ],
)
def test_values_in_a_table(name: str, value: object, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("none.such", [[{name: value}]], as_json=False)
    assert out(capsys)[1] == shown


def test_results_of_all_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    print_result("x", {"a": 1, "inner": {"b": "c"}, "rows": [{"n": 1}, {"n": 2}]}, as_json=False)
    assert out(capsys) == ["a          1", "inner.b    c", "rows[0].n  1", "rows[1].n  2"]
    print_result("x", "done", as_json=False)
    print_result("x", ["a", 1], as_json=False)
    print_result("x", None, as_json=False)
    assert out(capsys) == ["done", "a, 1", "-"]
    print_result("x", [{"a": 1}, {"a": 2}], as_json=False)
    assert out(capsys) == ["a", "1", "2"]
    print_result("x", [{"a": 1}, {"a": 2}], as_json=True)
    assert out(capsys) == ['[{"a": 1}, {"a": 2}]']


def test_a_configuration_is_shown_as_the_command_config_does(capsys: pytest.CaptureFixture[str]) -> None:
    config = from_mapping({"mqtt": {"max_qos": 1}, "listeners": []})
    print_toml(config.model_dump(mode="json"))
    assert capsys.readouterr().out == as_toml(Loaded(config, {})) + "\n"


def test_columns_are_those_of_operations() -> None:
    assert set(COLUMNS) <= {name for name, each in OPERATIONS.items() if each.listing}


def test_what_can_be_done_without_is_in_the_table() -> None:
    for name, columns in DISPENSABLE.items():
        assert set(columns.split()) < set(COLUMNS[name].split())
