"""Rows for people and for programs."""

import json
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from rich.console import Console

from trunkline.analytics.printing import as_json, print_table, with_zone

TIME = datetime(2025, 6, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def printed(rows: list[dict[str, Any]], width: int = 80, **more: bool) -> list[str]:
    console = Console(file=StringIO(), width=width)
    print_table(console, list(rows[0]) if rows else ["a", "b"], rows, "Title", **more)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_json_is_plain() -> None:
    row = {
        "time": TIME,
        "naive": TIME.astimezone().replace(tzinfo=None),
        "nothing": None,
        "bytes": bytearray(b"\xff"),
        "list": [{"key": "a", "value": b"b"}],
        "nan": float("nan"),
        "number": 0.5,
        "name": "é\n",
    }
    line = as_json(with_zone(row))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2025-06-01T12:00:00.250000Z",
        "naive": "2025-06-01T12:00:00.250000Z",
        "bytes": "/w==",
        "list": [{"key": "a", "value": "Yg=="}],
        "nan": "NaN",
        "number": 0.5,
        "name": "é\n",
    }


def test_a_table_has_what_there_is() -> None:
    rows = [
        {"when": TIME, "name": "[red]\x1b[2J", "empty": None, "n": 1234567, "f": 1.23456, "ok": True},
        {"when": TIME.replace(microsecond=0), "name": "b", "empty": None, "n": 2, "f": 123456.7, "ok": None},
    ]
    lines = printed(rows)
    assert lines[0] == "Title"
    assert [cell.strip() for cell in lines[2].strip("┃").split("┃")] == ["when", "name", "n", "f", "ok"]
    first, second = ([cell.strip() for cell in line.strip("│").split("│")] for line in lines[4:6])
    assert first == ["2025-06-01 12:00:00.25", "[red]\\x1b[2J", "1,234,567", "1.235", "yes"]
    assert second == ["2025-06-01 12:00:00", "b", "2", "123,457", ""]
    assert lines[4].index("1,234,567") + len("1,234,567") == lines[5].index(" 2 ") + 2


def test_columns_without_room_are_named() -> None:
    lines = printed([{"first": "x" * 20, "second": "y" * 20, "third": 3, "fourth": 4}], width=50)
    assert "third" not in lines[2]
    assert lines[-1] == "no room for third, fourth: choose with --columns,"[:50] or lines[-2].startswith("no room for")
    assert max(map(len, lines)) <= 50


def test_one_column_is_always_there() -> None:
    assert any("first" in line for line in printed([{"first": "x" * 200, "second": 1}], width=20))


def test_that_there_is_more_is_said() -> None:
    assert printed([{"a": 1}], more=True)[-1] == "there are more rows: --rows shows more of them"


def test_no_rows_are_no_table() -> None:
    assert printed([]) == ["Title", "nothing"]


def test_an_incarnation_is_written_as_in_the_key_of_a_node() -> None:
    assert "1763739192123" in printed([{"incarnation": 1763739192123, "rows": 2}])[4]
