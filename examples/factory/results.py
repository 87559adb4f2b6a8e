"""The results that arrive by MQTT, and their comparison with the expected ones."""

import json
import time
from collections.abc import Mapping
from datetime import datetime
from math import isclose
from typing import Any, Final

from reference import SECOND, Rows
from trunkline.analytics.sinks.deduplicator import Deduplicator
from trunkline.client.sync import Subscription

#: The columns that identify a row of each job's results.
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "latency": ("window_start", "node", "prefix", "qos"),
    "traffic": ("window_start", "rank"),
    "flapping": ("subject", "state", "time"),
    "silent": ("client_id", "state", "time"),
}
#: Columns that come as text, and are kept as microseconds since the epoch.
_TIMES: Final = ("window_start", "window_end", "time", "began", "last_seen")
#: Columns that are less, and never more, where rows came too late to count.
_COUNTS: Final = ("messages", "receivers", "delivered", "total_messages", "count")
#: Differences that are listed for each job.
MAX_LISTED: Final = 5


class Results:
    """The rows by job and key, each once: a batch that Spark repeats after a failure is published again."""

    def __init__(self, messages: Subscription) -> None:
        self.rows: dict[str, Rows] = {job: {} for job in KEYS}
        #: Seconds from the end of a window until its result was taken in, for the newest result.
        self.delay: float | None = None
        #: When the first result of each job was taken in, by `time.monotonic`.
        self.first: dict[str, float] = {}
        self._messages = messages
        self._seen = Deduplicator()

    def take(self) -> None:
        """Take in what has come."""
        while self._messages:
            message = self._messages.receive()
            if not self._seen.is_new(message.properties.get("user_property", ())):
                continue
            row = json.loads(message.payload)
            row.update({name: _microseconds(row[name]) for name in _TIMES if name in row})
            job = message.topic.split("/")[1]
            self.rows[job][tuple([row[column] for column in KEYS[job]])] = row
            self.first.setdefault(job, time.monotonic())
            if "window_end" in row:
                self.delay = time.time() - row["window_end"] / SECOND

    def newest(self, job: str) -> list[dict[str, Any]]:
        """The rows of the newest window, in the order of their keys."""
        rows = self.rows[job]
        begin = max((key[0] for key in rows), default=None)
        return [rows[key] for key in sorted(rows) if key[0] == begin]

    def latest(self, job: str) -> list[dict[str, Any]]:
        """The latest state of each client."""
        rows = self.rows[job]
        last = {key[0]: rows[key] for key in sorted(rows, key=lambda key: key[2]) if not _is_storm(rows[key])}
        return [last[client] for client in sorted(last)]

    def until(self, time: int) -> dict[str, Rows]:
        """All rows, without states that began after that time (microseconds since the epoch), and without storms, which
        are alerts of a node."""
        return {
            job: {key: row for key, row in rows.items() if row.get("time", 0) <= time and not _is_storm(row)}
            for job, rows in self.rows.items()
        }


def _is_storm(row: Mapping[str, Any]) -> bool:
    return row.get("alert") == "storm"


def _microseconds(text: str) -> int:
    at = datetime.fromisoformat(text)
    return round(at.replace(microsecond=0).timestamp()) * SECOND + at.microsecond


def verdict(expected: Rows, found: Rows, late: int) -> tuple[str, list[str]]:
    """How the results compare, in words, and the differences that are faults. `late` rows came after their windows had
    closed, and did not count: results that have less are then what they should be."""
    lines = differences(expected, found)
    if not lines:
        return "no differences from plain Python", []
    if late and not _has_more(expected, found):
        return f"{late} rows came after their windows had closed, and {len(lines)} values are without them", []
    return f"{len(lines)} differences from plain Python", lines


def _has_more(expected: Rows, found: Rows) -> bool:
    """Whether a window has a result that it should not have, or one that counts more than there was."""
    return any(
        key[0] == row.get("window_start") if key not in expected else row.get(name, 0) > expected[key].get(name, 0)
        for key, row in found.items()
        for name in _COUNTS
    )


def differences(expected: Rows, found: Rows) -> list[str]:
    """A line for each row that differs, in the columns that are expected. Nulls may be left out."""
    lines: list[str] = []
    for key in sorted(expected.keys() | found.keys(), key=str):
        if key not in found:
            lines.append(f"{key}: did not come")
        elif key not in expected:
            lines.append(f"{key}: is not expected")
        else:
            lines += [
                f"{key}: {name} is {found[key].get(name)!r} and should be {value!r}"
                for name, value in expected[key].items()
                if not _same(value, found[key].get(name))
            ]
    return lines


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, int | float):
        return isclose(expected, found, rel_tol=1e-9, abs_tol=1e-9)
    return bool(expected == found)
