from dataclasses import replace

from tests.analytics.report.made import BEGIN, Growth, Loss, Talker, bad_day, nothing, whole
from trunkline.analytics.report.results import Alert, Results
from trunkline.analytics.report.sections.named import named
from trunkline.analytics.report.sections.order import sections
from trunkline.analytics.report.tables import MAX_ROWS


def tables(results: Results) -> dict[str, list[str]]:
    return {
        client_id: [told.table.id for told in one.told] for client_id, one in named(sections(results), results).items()
    }


def test_each_client_has_the_tables_that_name_it_once() -> None:
    losses = [Loss("a", "queue_full", 2), Loss("b", "queue_full", 1), Loss("a", "slow_consumer", 1)]
    clients = [Talker("a", 1, 1)]
    found = tables(replace(nothing(), losses=whole(losses), clients=whole(clients)))
    assert found == {"a": ["top-clients", "losses"], "b": ["losses"]}


def test_topics_nodes_and_addresses_are_no_clients() -> None:
    alerts = [Alert("logins", "peer", "p", BEGIN, None, 9), Alert("denied", "client", "c", BEGIN, None, 9)]
    growth = [Growth("", "retained.count", "n1", 34, 0.0, None, None)]
    results = replace(nothing(), alerts=whole(alerts), growth=whole(growth), topics=whole([Talker("t", 1, 1)]))
    assert tables(results) == {"c": ["alerts"]}


def test_what_no_table_has_room_for_is_not_named() -> None:
    rows = [Talker(f"c{number}", 1, 1) for number in range(100)]
    assert len(tables(replace(nothing(), clients=whole(rows)))) == MAX_ROWS


def test_a_table_says_all_of_a_client_but_its_name() -> None:
    losses = [Loss("a", "queue_full", 2), Loss("a", "slow_consumer", 1)]
    results = replace(nothing(), losses=whole(losses))
    (told,) = named(sections(results), results)["a"].told
    assert told.rows == ["Reason: queue_full; Messages: 2", "Reason: slow_consumer; Messages: 1"]


def test_what_a_client_did_is_in_words() -> None:
    results = replace(bad_day("odd"), source="events")
    found = named(sections(results), results)
    stay, got, dropped, refused = (each.replace("\N{NO-BREAK SPACE}", " ") for each in found["archive"].done)
    assert stay == (
        "2 connections, 28.3 min in all; the last on n1 since before recording began, until 2025-06-01 14:31:30 UTC, "
        "the client was silent."
    )
    assert got.endswith("messages, 4 kB, the last at 2025-06-01 14:31:20 UTC; most by site/1/temperature, odd.")
    assert dropped == "Dropped, of its messages or on the way to it: 30 (queue_full), 2 (odd)."
    assert refused == "1 connection refused."
    assert found["odd"].done[0] == "Was not connected."
    assert found["pump-17"].done == []
