"""Rows of alerts have the columns that are told of."""

from trunkline.analytics.jobs.alerts import COLUMNS, KEY, TIMES, Occurrence, Teller

NAMES = {column.name for column in COLUMNS}


def teller() -> Teller:
    found = Teller("logins", "peer", "192.0.2.1")
    found.see(Occurrence(7, "n1", 1, 0, 1, "c", "u", "192.0.2.1"))
    return found


def test_what_is_told_are_the_columns() -> None:
    assert teller().begin(7, 3, 2.0).keys() | teller().end(9, 3, 7).keys() == NAMES
    assert set(KEY) | set(TIMES) <= NAMES


def test_the_end_knows_the_beginning() -> None:
    row = teller().end(9_500_007, 4, 7)
    assert (row["state"], row["began"], row["duration"], row["count"]) == ("end", 7, 9.5, 4)


def test_the_latest_event_is_kept() -> None:
    again = Teller("logins", "peer", "192.0.2.1", teller().save())
    assert again.begin(7, 3, 2.0, 0.5) == {
        "alert": "logins",
        "scope": "peer",
        "subject": "192.0.2.1",
        "node": "n1",
        "client_id": "c",
        "username": "u",
        "peer": "192.0.2.1",
        "state": "begin",
        "time": 7,
        "began": 7,
        "count": 3,
        "threshold": 2.0,
        "usual": 0.5,
    }
