"""The results as they come by MQTT: each one once, with the newest ones at hand."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from trunkline.analytics.demo.reference import SECOND, Rows
from trunkline.analytics.sinks.deduplicator import Deduplicator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.mqtt.packets import Publish

#: The columns that name a row of each job's results.
KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "latency": ("window_start", "node", "prefix", "qos"),
    "traffic": ("window_start", "rank"),
    "flapping": ("subject", "state", "time"),
}
#: Columns that hold times, which come as text and are kept as microseconds since the epoch.
_TIMES: Final = ("window_start", "window_end", "time", "began")


class Received:
    """What came, by job and key."""

    def __init__(self) -> None:
        self.rows: dict[str, Rows] = {job: {} for job in KEYS}
        #: Messages that came again, and those that are no results.
        self.repeats = 0
        self.strange = 0
        #: Seconds from the end of a window to the arrival of its result, the last time.
        self.behind: float | None = None
        self._news = Deduplicator()

    def take(self, message: Publish, now: float) -> None:
        """Of a message below `$analytics/`; `now` is seconds since the epoch."""
        if not self._news.is_new(message.properties.get("user_property", ())):
            self.repeats += 1
            return
        job = message.topic.split("/")[1]
        try:
            row = _row(json.loads(message.payload))
            key = tuple([row[column] for column in KEYS[job]])
        except (ValueError, KeyError, TypeError, AttributeError):
            self.strange += 1
            return
        self.rows[job][key] = row
        if "window_end" in row:
            self.behind = now - row["window_end"] / SECOND

    def newest(self, job: str) -> list[dict[str, Any]]:
        """The rows of its newest window, in the order of their keys."""
        rows = self.rows[job]
        newest = max((key[0] for key in rows), default=None)
        return [rows[key] for key in sorted(rows) if key[0] == newest]

    def flapping(self) -> list[dict[str, Any]]:
        """The last that was told of each client that flaps, those that flap still first."""
        last: dict[str, dict[str, Any]] = {}
        for key in sorted(self.rows["flapping"], key=lambda key: key[2]):
            row = self.rows["flapping"][key]
            last[row["subject"]] = row
        return sorted(last.values(), key=lambda row: (row["state"] != "begin", row["began"], row["subject"]))


def _row(loaded: dict[str, Any]) -> dict[str, Any]:
    times: dict[str, Any] = {name: _microseconds(loaded[name]) for name in _TIMES if name in loaded}
    return {**loaded, **times}


def _microseconds(text: str) -> int:
    time = datetime.fromisoformat(text)
    return round(time.replace(microsecond=0).timestamp()) * SECOND + time.microsecond
