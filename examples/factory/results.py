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
}
#: Columns that come as text, and are kept as microseconds since the epoch.
_TIMES: Final = ("window_start", "window_end", "time", "began")
#: Differences that are listed for each job.
MAX_LISTED: Final = 5


class Results:
    """The rows by job and key, each once: a batch that Spark repeats after a failure is published again."""

    def __init__(self, messages: Subscription) -> None:
        self.rows: dict[str, Rows] = {job: {} for job in KEYS}
        #: Seconds from the end of a window until its result was taken in, for the newest result.
        self.delay: float | None = None
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
            if "window_end" in row:
                self.delay = time.time() - row["window_end"] / SECOND

    def newest(self, job: str) -> list[dict[str, Any]]:
        """The rows of the newest window, in the order of their keys."""
        rows = self.rows[job]
        begin = max((key[0] for key in rows), default=None)
        return [rows[key] for key in sorted(rows) if key[0] == begin]

    def flapping(self) -> list[dict[str, Any]]:
        """The latest alert of each client."""
        alerts = [row for row in self.rows["flapping"].values() if row["alert"] == "flapping"]
        last = {row["subject"]: row for row in sorted(alerts, key=lambda row: row["time"])}
        return [last[subject] for subject in sorted(last)]

    def until(self, time: int) -> dict[str, Rows]:
        """All rows, without alerts after that time (microseconds since the epoch), and without storms, which are alerts
        of a node."""
        flaps = self.rows["flapping"].items()
        kept = {key: row for key, row in flaps if row["alert"] == "flapping" and row["time"] <= time}
        return {**self.rows, "flapping": kept}


def _microseconds(text: str) -> int:
    at = datetime.fromisoformat(text)
    return round(at.replace(microsecond=0).timestamp()) * SECOND + at.microsecond


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
