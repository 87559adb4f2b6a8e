"""Clients that go from one node to another."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import Field
from pyspark.sql import DataFrame

from trunkline.analytics.jobs.job import Column, Seconds, job
from trunkline.analytics.jobs.machines import Machine, Result, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.windows import heard

CONNECTED: Final = "client.connected"
KINDS: Final = (CONNECTED, "client.disconnected", "session.taken_over")


class MovesOptions(StatefulOptions):
    forget: Seconds = Field(
        default=7 * 86400.0,
        gt=0,
        description="Seconds after which it is forgotten where a client was. One that comes later did not move.",
    )


class Seen(NamedTuple):
    """A client came to a node, or left it."""

    at: int
    node: str
    incarnation: int
    seq: int
    kind: str


class Whereabouts(Machine[Seen]):
    """Where one client is."""

    def __init__(self, client_id: str, forget: int, saved: list[Any] | None = None) -> None:
        self._client_id = client_id
        #: Microseconds.
        self._forget = forget
        self._node: str | None = None
        self._there = False
        #: Microseconds since the epoch: when it came there, or left.
        self._seen = 0
        if saved is not None:
            self._node, self._there, self._seen = saved

    def event(self, event: Seen) -> Iterator[Result]:
        if event.kind == CONNECTED:
            if self._node not in (None, event.node):
                yield {
                    "time": event.at,
                    "client_id": self._client_id,
                    "from_node": self._node,
                    "to_node": event.node,
                    "after": (event.at - self._seen) / 1e6,
                    "how": "taken_over" if self._there else "came_back",
                }
            self._go(event, True)
        elif event.node == self._node:  # that it left a node where it is no more is no news
            self._go(event, False)

    def _go(self, event: Seen, there: bool) -> None:
        self._node, self._there, self._seen = event.node, there, event.at
        self.due = event.at + self._forget

    def expire(self) -> Iterator[Result]:
        self._node = self.due = None
        return iter(())

    def save(self) -> list[Any] | None:
        return None if self._node is None else [self._node, self._there, self._seen]


@dataclass(frozen=True)
class Memory:
    """After how many microseconds it is forgotten where a client was."""

    event: ClassVar = Seen
    forget: int

    def machine(self, subject: Subject, saved: list[Any] | None) -> Whereabouts:
        return Whereabouts(subject[1], self.forget, saved)


COLUMNS: Final = (
    Column("time", "timestamp", "When it came to the other node."),
    Column("client_id", "string", "The client."),
    Column("from_node", "string", "Where it was."),
    Column("to_node", "string", "Where it is now."),
    Column("after", "double", "Seconds since it came to the first node, or left it."),
    Column("how", "string", "`taken_over`: it was still connected there; `came_back`: it had left."),
)


@job(
    "moves",
    options=MovesOptions,
    kinds=KINDS,
    columns=COLUMNS,
    key=("time", "client_id", "from_node", "to_node"),
    times=("time",),
)
def moves(events: DataFrame, options: MovesOptions) -> DataFrame:
    """Each time that a client connects to another node than the last time, and whether it was still connected there.

    A client has one session in a cluster, so such a takeover costs its nodes more than one within a node, and a client that
    moves again and again hints at a load balancer, or at two devices with one client id. It goes by the nodes' clocks:
    what two nodes wrote within the difference of these may be taken in the wrong order.
    """
    rows = in_buckets(heard(events, KINDS, options.lateness), options.buckets, subject("client", "client_id"))
    return run(rows, events, Memory(microseconds(options.forget)), COLUMNS)
