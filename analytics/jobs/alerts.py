"""What begins and ends: the rows that tell of alerts, and what they are told about."""

from typing import Final, NamedTuple

from trunkline.analytics.jobs.job import Column
from trunkline.analytics.jobs.machines import Result

COLUMNS: Final = (
    Column("time", "timestamp", "When the alert began, or ended."),
    Column("alert", "string", "Which alert."),
    Column("state", "string", "`begin` or `end`."),
    Column("scope", "string", "What `subject` is: `client`, `peer` (an address) or `node`."),
    Column("subject", "string", "The client, address or node."),
    Column("node", "string", "Where its latest event was."),
    Column("client_id", "string", "Of its latest event."),
    Column("username", "string", "Of its latest event."),
    Column("peer", "string", "Of its latest event."),
    Column(
        "count", "bigint", "Events: at the beginning those within the window, at the end all since the first of them."
    ),
    Column("threshold", "double", "At the beginning: `count` is above it."),
    Column("usual", "double", "At the beginning, where there is a baseline: events that a window usually has."),
    Column("began", "timestamp", "When the alert began."),
    Column("duration", "double", "At the end: seconds since the beginning."),
)
#: They name a row.
KEY: Final = ("alert", "scope", "subject", "state", "time")
TIMES: Final = ("time", "began")


class Occurrence(NamedTuple):
    """An event of which there may be too many."""

    at: int
    node: str
    incarnation: int
    seq: int
    weight: int
    client_id: str | None
    username: str | None
    peer: str | None


class Teller:
    """Makes the rows about one subject, which know its latest event."""

    def __init__(self, alert: str, scope: str, subject: str, saved: list[str | None] | None = None) -> None:
        self._about: Result = {"alert": alert, "scope": scope, "subject": subject}
        self._latest: list[str | None] = saved or [None] * 4

    def see(self, event: Occurrence) -> None:
        self._latest = [event.node, event.client_id, event.username, event.peer]

    def begin(self, at: int, count: int, threshold: float, usual: float | None = None) -> Result:
        return self._row("begin", at, count) | {"threshold": threshold, "usual": usual, "began": at}

    def end(self, at: int, count: int, began: int) -> Result:
        return self._row("end", at, count) | {"began": began, "duration": (at - began) / 1_000_000}

    def _row(self, state: str, at: int, count: int) -> Result:
        latest = zip(("node", "client_id", "username", "peer"), self._latest, strict=True)
        return {**self._about, **dict(latest), "state": state, "time": at, "count": count}

    def save(self) -> list[str | None]:
        return self._latest
