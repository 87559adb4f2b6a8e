"""Clients that go from one node to another."""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar, Final, NamedTuple

from pyspark.sql import DataFrame

from trunkline.analytics.jobs.job import job
from trunkline.analytics.jobs.machines import Machine, Machines, Result, Subject, microseconds
from trunkline.analytics.jobs.stateful import StatefulOptions, in_buckets, run, subject
from trunkline.analytics.jobs.windows import heard
from trunkline.analytics.options import DAY, Positive

CONNECTED: Final = "client.connected"
KINDS: Final = (CONNECTED, "client.disconnected", "session.taken_over")


class MovesOptions(StatefulOptions):
    forget: Positive = 7 * DAY
    """Seconds after which it is forgotten where a client was. One that comes later did not move."""


class MoveEvent(NamedTuple):
    """A client came to a node, or left it."""

    at: int
    node: str
    incarnation: int
    seq: int
    kind: str


class Whereabouts(Machine[MoveEvent]):
    """Where one client is."""

    state: ClassVar[tuple[str, ...]] = ("node", "there", "seen")

    def __init__(self, forget: int, subject: Subject) -> None:
        """`forget` is microseconds."""
        self._client_id = subject.name
        self._forget = forget
        self.node: str | None = None
        self.there = False
        #: When it came there, or left.
        self.seen = 0

    def event(self, event: MoveEvent) -> Iterator[Result]:
        came = event.kind == CONNECTED
        if came and self.node not in (None, event.node):
            yield {
                "time": event.at,
                "client_id": self._client_id,
                "from_node": self.node,
                "to_node": event.node,
                "after": (event.at - self.seen) / 1e6,
                "how": "taken_over" if self.there else "came_back",
            }
        # Leaving a node where the client no longer is means nothing. But a client whose node was forgotten
        # was on the one that it leaves.
        if came or self.node in (None, event.node):
            self.node, self.there, self.seen = event.node, came, event.at
            self.due = event.at + self._forget

    def expire(self) -> Iterator[Result]:
        self.node = self.due = None
        return iter(())


@job(
    options=MovesOptions,
    kinds=KINDS,
    columns="""
        time timestamp When it came to the other node.
        client_id string The client.
        from_node string Where it was.
        to_node string Where it is now.
        after double Seconds since it came to the first node, or left it.
        how string `taken_over`: it was still connected there; `came_back`: it had left.
    """,
    key=("time", "client_id", "from_node", "to_node"),
)
def moves(events: DataFrame, options: MovesOptions) -> DataFrame:
    """Clients that go from one node to another, and takeovers.

    There is a row each time that a client connects to another node than the last time. A client has one session in a
    cluster, so such a takeover costs its nodes more than one within a node, and a client that moves again and again
    hints at a load balancer, or at two devices with one client id. It goes by the nodes' clocks: what two nodes wrote
    within the difference of these may be taken in the wrong order.
    """
    rows = in_buckets(heard(events, KINDS, options.lateness), options.buckets, subject("client", "client_id"))
    return run(rows, events, Machines(MoveEvent, partial(Whereabouts, microseconds(options.forget))), moves.columns)
