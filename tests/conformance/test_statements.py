"""The table of statements is complete, and the page made from it is up to date."""

from tests.conformance import report
from tests.conformance.statement import CLIENT
from tests.conformance.statements import STATEMENTS
from tests.conformance.statements_v5 import V5
from tests.conformance.statements_v311 import V311


def test_every_statement_is_there_once() -> None:
    assert len(V5) == 251
    assert len(V311) == 141
    assert len(STATEMENTS) == 251 + 141


def test_every_statement_is_shown_or_says_why_not() -> None:
    shown = report.demonstrations()
    missing = [id for id, statement in STATEMENTS.items() if id not in shown and not statement.unseen]
    assert missing == []


def test_no_statement_is_both_shown_and_excused() -> None:
    shown = report.demonstrations()
    assert [id for id, statement in STATEMENTS.items() if id in shown and statement.unseen] == []


def test_only_duties_of_clients_are_excused_as_such() -> None:
    excused = [statement for statement in STATEMENTS.values() if statement.unseen == "binds the client"]
    assert all(statement.binds == CLIENT for statement in excused)


def test_the_page_is_up_to_date() -> None:
    assert report.PAGE.read_text() == report.page(), "run: python -m tests.conformance.report"
