"""By which of its subscriptions a client got a delivery, which the broker does not say."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from trunkline.analytics.jobs.job import Column
from trunkline.analytics.jobs.machines import Machine, Result, Subject
from trunkline.analytics.jobs.subscriptions import ENDED, MADE, Subscriptions

DELIVERED: Final = "message.delivered"

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
        self._filters = Subscriptions[str](limit)
        for name in saved or ():
            self._filters.put(name, name)

    def event(self, event: Seen) -> Iterator[Result]:
        if event.kind == DELIVERED:
            for name in self._filters.of(event.topic or ""):
                yield {
                    "born": event.born_us,
                    "name": name,
                    "message": event.message,
                    "weight": event.weight,
                    "size": event.size,
                }
        elif event.kind == MADE:
            self._filters.put(event.filter or "", event.filter or "")
        else:
            self._filters.take(event.filter if event.kind == ENDED else None)

    def save(self) -> list[str] | None:
        return list(self._filters.values()) or None


@dataclass(frozen=True)
class ByFilter:
    """Remembers up to `limit` filters of a client."""

    event: ClassVar = Seen
    limit: int

    def machine(self, subject: Subject, saved: list[Any] | None) -> Filters:
        return Filters(self.limit, saved)
