"""By which of its subscriptions a client got a delivery, which the broker does not say."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from trunkline.analytics.jobs.job import Column
from trunkline.analytics.jobs.machines import Machine, Result, Subject
from trunkline.mqtt.topics import matches, parse_shared

MADE: Final = "session.subscribed"
ENDED: Final = "session.unsubscribed"
#: All subscriptions of the client are gone: its session ended, or began anew.
GONE: Final = ("session.created", "session.discarded", "session.terminated")
DELIVERED: Final = "message.delivered"
#: Topics whose filters a machine remembers, so that it need not match them again.
_TOPICS: Final = 1000

#: What the machines tell: a row for each delivery and filter.
COLUMNS: Final = (
    Column("born", "timestamp", "When the message was published."),
    Column("name", "string", "The filter."),
    Column("message", "string", "Id of the message."),
    Column("weight", "int", "How many messages the row stands for."),
    Column("size", "bigint", "Bytes of the payload."),
)


class Seen(NamedTuple):
    at: int
    node: str
    incarnation: int
    seq: int
    kind: str
    filter: str | None
    topic: str | None
    born_us: int
    message: str | None
    weight: int
    size: int | None


class Filters(Machine[Seen]):
    """The subscriptions of one client. A delivery belongs to each whose filter takes its topic, since the broker sends a
    message once where several do."""

    def __init__(self, limit: int, saved: list[str] | None = None) -> None:
        self._limit = limit
        self._filters = dict.fromkeys(saved or ())
        self._by_topic: dict[str, list[str]] = {}

    def event(self, event: Seen) -> Iterator[Result]:
        if event.kind == DELIVERED:
            for name in self._of(event.topic or ""):
                yield {
                    "born": event.born_us,
                    "name": name,
                    "message": event.message,
                    "weight": event.weight,
                    "size": event.size,
                }
            return
        self._by_topic.clear()
        if event.kind in GONE:
            self._filters.clear()
        elif event.kind == ENDED:
            self._filters.pop(event.filter or "", None)
        elif event.filter is not None and len(self._filters) < self._limit:
            self._filters[event.filter] = None

    def _of(self, topic: str) -> list[str]:
        found = self._by_topic.get(topic)
        if found is None:
            if len(self._by_topic) >= _TOPICS:
                self._by_topic.clear()
            found = [name for name in self._filters if matches((parse_shared(name) or ("", name))[1], topic)]
            self._by_topic[topic] = found
        return found

    def save(self) -> list[str] | None:
        return list(self._filters) or None


@dataclass(frozen=True)
class ByFilter:
    """Remembers up to `limit` filters of a client."""

    event: ClassVar = Seen
    limit: int

    def machine(self, subject: Subject, saved: list[Any] | None) -> Filters:
        return Filters(self.limit, saved)
