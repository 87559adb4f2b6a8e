"""The actors of the broker, under their supervisors."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

import trio

from trunkline.management.operations.registry import (
    AT_ONCE,
    Administered,
    Limit,
    Page,
    Position,
    operation,
)


@dataclass(frozen=True, slots=True)
class ActorRow:
    #: Its supervisor: `node`, `sessions`, `connections`, a plugin's.
    layer: str
    name: str
    #: `waiting` for messages, `ready` to run, `starting`, `ending`.
    state: str
    #: Messages that wait, and messages that it has handled.
    mailbox: int
    handled: int
    restarts: int
    #: In seconds.
    age: float


@operation("actors")
async def list_actors(
    broker: Administered,
    layer: Annotated[str, "Only actors of this supervisor, such as node, sessions or connections."] = "",
    name: Annotated[str, "Only actors whose name has this prefix."] = "",
    after: Position = 0,
    limit: Limit = AT_ONCE,
) -> Page[ActorRow]:
    """Actors under their supervisors, with what waits in their mailboxes and how much they have handled."""
    rows = list(islice(_rows(broker, layer, name), after, after + limit))
    await trio.lowlevel.checkpoint()
    return Page(rows, after + limit if len(rows) == limit else None)


def _rows(broker: Administered, layer: str, name: str) -> Iterator[ActorRow]:
    now = trio.current_time()
    for above, ref, restarts in broker.supervisor.tree():
        if layer in ("", above) and ref.name.startswith(name):
            yield ActorRow(above, ref.name, ref.state, ref.queued, ref.handled, restarts, round(now - ref.since, 3))
