"""One answer of several."""

from typing import Any

import pytest

from trunkline.management.merging import ANYWHERE, EVERYWHERE, SOMEWHERE, merged_results, merged_rows
from trunkline.management.operations import OPERATIONS

Row = dict[str, Any]


def rows(operation: str, *parts: list[Row], after: int = 0) -> list[Row]:
    return list(merged_rows(operation, parts, after))


def test_clients_come_in_the_order_of_their_ids() -> None:
    one, other = [{"client_id": name} for name in "adf"], [{"client_id": name} for name in "bce"]
    assert [row["client_id"] for row in rows("clients.list", one, other)] == list("abcdef")


def test_a_page_is_asked_for_when_it_is_needed() -> None:
    """Of each worker no more than what is printed."""
    asked = []

    def part(name: str) -> Any:
        for number in range(1000):
            asked.append(name)
            yield {"client_id": f"{name}{number:04}"}

    merged = merged_rows("clients.list", [part("a"), part("b")], 0)
    assert [next(merged)["client_id"] for _ in range(3)] == ["a0000", "a0001", "a0002"]
    assert len(asked) <= 5


def test_subscriptions_are_in_the_order_of_client_and_filter() -> None:
    one = [{"client_id": "a", "filter": "x"}, {"client_id": "b", "filter": "a"}]
    other = [{"client_id": "aa", "filter": "b"}]
    assert rows("subscriptions.list", one, other) == [one[0], other[0], one[1]]


def test_traces_begin_with_what_is_newest() -> None:
    assert [row["guid"] for row in rows("trace.list", [{"guid": "5"}, {"guid": "1"}], [{"guid": "3"}])] == list("531")


def test_a_route_of_several_has_all_their_subscribers() -> None:
    one = [{"filter": "a", "subscribers": 1}, {"filter": "c", "subscribers": 2}]
    other = [{"filter": "a", "subscribers": 10}, {"filter": "b", "subscribers": 20}]
    assert [tuple(row.values()) for row in rows("routes.list", one, other)] == [("a", 11), ("b", 20), ("c", 2)]


def test_a_retained_message_is_shown_once() -> None:
    message = {"topic": "t", "payload": "x"}
    assert rows("retained.list", [message], [message], [message]) == [message]


def test_a_ban_that_all_workers_have_is_shown_once() -> None:
    ann, bob = ({"kind": "client_id", "who": who, "until": None} for who in ("ann", "bob"))
    assert rows("bans.list", [ann, bob], [ann], [ann, bob]) == [ann, bob]


def test_listeners_have_the_connections_of_all() -> None:
    one, other = ([{"name": "a", "url": "tcp://", "connections": count}] for count in (2, 3))
    assert rows("listeners.list", one, other) == [{"name": "a", "url": "tcp://", "connections": 5}]


STATUS: Row = {
    "node": "n",
    "version": "1",
    "pid": 5,
    "started_at": 100.0,
    "uptime": 50.0,
    "listeners": [{"name": "a", "host": "h", "port": 1, "connections": 2}],
    "connections": 2,
    "retained": 3,
    "alarms": 1,
    "rates": {"bytes_sent": {"1min": 0.1, "5min": 1.0}},
}


def test_a_status_is_that_of_the_node() -> None:
    other = {**STATUS, "pid": 6, "started_at": 120.0, "uptime": 30.0}
    assert merged_results("status", [STATUS, other]) == {
        "node": "n",
        "version": "1",
        "workers": [5, 6],
        "started_at": 100.0,
        "uptime": 50.0,
        "listeners": [{"name": "a", "host": "h", "port": 1, "connections": 4}],
        "connections": 4,
        "retained": 3,
        "alarms": 1,
        "rates": {"bytes_sent": {"1min": 0.2, "5min": 2.0}},
    }


def test_a_reload_tells_once_what_it_could_not_do() -> None:
    one = {"reloaded": True, "restart_needed_for": ["a"], "failed": []}
    other = {"reloaded": True, "restart_needed_for": ["a"], "failed": ["b"]}
    expected = {"reloaded": True, "restart_needed_for": ["a"], "failed": ["b"]}
    assert merged_results("reload", [one, other]) == expected


def test_a_trace_has_the_messages_of_all_workers() -> None:
    state = {"on": True, "since": 1.0}
    assert merged_results("trace.status", [{**state, "messages": count} for count in (2, 3)]) == {
        **state,
        "messages": 5,
    }


@pytest.mark.parametrize("names", [ANYWHERE, SOMEWHERE, EVERYWHERE])
def test_they_are_operations_that_are_no_listings(names: frozenset[str]) -> None:
    assert not [name for name in names if OPERATIONS[name].listing]
    assert len(ANYWHERE | SOMEWHERE | EVERYWHERE) == len(ANYWHERE) + len(SOMEWHERE) + len(EVERYWHERE)
