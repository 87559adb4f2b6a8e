from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from tests.events.logs import KEY, NODE, append, write
from trunkline.events import inspection
from trunkline.events.inspection import Row, Selection, following, newest
from trunkline.events.layout import NodeKey
from trunkline.events.reader import EventLog


def seqs(rows: list[Row]) -> list[Any]:
    return [row["seq"] for row in rows]


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        (Selection(), True),
        (Selection(kinds=("message.*",)), True),
        (Selection(kinds=("client.*", "message.delivere?")), True),
        (Selection(kinds=("message",)), False),
        (Selection(clients=("device-*",)), True),
        (Selection(clients=("device",)), False),
        (Selection(topics=("plant/+/temperature",)), True),
        (Selection(topics=("x", "plant/#")), True),
        (Selection(topics=("plant/+",)), False),
        (Selection(kinds=("message.*",), clients=("other",)), False),
    ],
)
def test_what_a_selection_takes(choice: Selection, taken: bool) -> None:
    row = {"kind": "message.delivered", "client_id": "device-1", "topic": "plant/4/temperature"}
    assert choice.takes(row) is taken


def test_what_has_no_topic_or_client_is_not_taken_by_one() -> None:
    row = {"kind": "node.tick", "client_id": None, "topic": None}
    assert Selection().takes(row)
    assert not Selection(clients=("*",)).takes(row)
    assert not Selection(topics=("#",)).takes(row)


def test_a_node_has_its_key_and_its_name() -> None:
    for node, has in (("", True), (NODE, True), (KEY.name, True), ("n2", False)):
        assert Selection(node=node).has_node(NODE) is has


@pytest.mark.parametrize("step", [7, 10_000])
def test_the_newest_are_searched_from_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(inspection, "_STEP", step)
    write(tmp_path, [20, 30])
    log = EventLog(tmp_path)
    rows, ends = newest(log, Selection(), 3)
    assert (seqs(rows), ends) == ([47, 48, 49], {NODE: 50})
    assert seqs(newest(log, Selection(kinds=("client.*",)), 3)[0]) == [42, 45, 48]
    assert seqs(newest(log, Selection(clients=("nobody",)), 3)[0]) == []
    assert seqs(newest(log, Selection(), 99)[0]) == list(range(50))
    assert newest(log, Selection(), 0) == ([], {NODE: 50})


def test_of_several_nodes_the_newest_by_time(tmp_path: Path) -> None:
    write(tmp_path, [10])
    write(tmp_path, [12], NodeKey("n2", KEY.incarnation))
    rows, ends = newest(EventLog(tmp_path), Selection(), 4)
    assert [(row["node"], row["seq"]) for row in rows] == [("n1", 9), ("n2", 9), ("n2", 10), ("n2", 11)]
    assert sorted(ends.values()) == [10, 12]
    rows, _ = newest(EventLog(tmp_path), Selection(node="n1"), 4)
    assert {row["node"] for row in rows} == {"n1"}


def test_what_follows_comes_once(tmp_path: Path) -> None:
    writer = write(tmp_path, [10])
    log = EventLog(tmp_path)
    _, ends = newest(log, Selection(), 1)
    assert following(log, Selection(), ends) == []
    append(writer, 5)
    choice = Selection(kinds=("client.*",))
    assert seqs(following(log, choice, ends)) == [12]
    assert following(log, choice, ends) == []
    assert ends == {NODE: 15}
