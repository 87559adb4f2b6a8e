from dataclasses import replace

from tests.analytics.report.made import BEGIN, Growth, Loss, Talker, nothing, whole
from trunkline.analytics.report.results import Alert, Results
from trunkline.analytics.report.sections.named import named
from trunkline.analytics.report.sections.order import sections
from trunkline.analytics.report.tables import MAX_ROWS


def tables(results: Results) -> dict[str, list[str]]:
    return {client_id: [table.id for table in one.tables] for client_id, one in named(sections(results)).items()}


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
