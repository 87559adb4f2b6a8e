from dataclasses import replace

from tests.analytics.report.made import BEGIN, Drop, Growth, bad_day, nothing
from trunkline.analytics.report.findings import findings, tiles


def test_nothing_stands_out_where_nothing_happened() -> None:
    assert findings(nothing()) == []
    assert {tile.figure for tile in tiles(nothing())} == {"0", "–"}


def test_all_that_went_wrong_is_told_and_leads_somewhere() -> None:
    found = findings(bad_day())
    assert [finding.section for finding in found] == [
        "pipeline",
        "pipeline",
        "flapping",
        "silent",
        "denials",
        "drops",
        "queues",
    ]
    assert [finding.text for finding in found[:5]] == [
        "5 events cannot be read: figures are too low.",
        "The exporter lost 40 events: figures are too low.",
        "2 clients flapped.",
        "1 client fell silent.",
        "Passwords were guessed from 1 address.",
    ]


def test_messages_that_nobody_wants_are_no_loss() -> None:
    rows = [Drop(BEGIN, "no_subscribers", 100), Drop(BEGIN, "queue_full", 1)]
    assert [finding.text for finding in findings(replace(nothing(), drops=rows))] == [
        "1 message did not reach a subscriber."
    ]
    assert findings(replace(nothing(), drops=rows[:1])) == []


def test_tiles_add_up() -> None:
    results = bad_day()
    found = {tile.name: tile for tile in tiles(results)}
    assert found["Denied"].figure == "69"
    assert found["Latency, worst p99"].figure == "40\N{NO-BREAK SPACE}ms"
    assert found["Published"].more.endswith("MB")


def test_what_will_be_full_is_told_by_the_first() -> None:
    rows = [Growth("a", "queue_length", "n", 1, 1, 7200), Growth("b", "queue_length", "n", 1, 1, 90)]
    assert [finding.text for finding in findings(replace(nothing(), growth=rows))] == [
        "2 queues or stores will be full, the first in 90\N{NO-BREAK SPACE}s."
    ]


def test_refusals_without_guesses_are_counted() -> None:
    assert [finding.text for finding in findings(replace(nothing(), denied=3))] == ["Refused: 3 requests."]
