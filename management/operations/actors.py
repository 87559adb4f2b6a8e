"""The actors of the broker, under their supervisors."""

from itertools import islice
from typing import Annotated

import trio

from trunkline.broker.node.admin import Admin
from trunkline.broker.views import ActorRow
from trunkline.management.operations.registry import (
    AT_ONCE,
    Limit,
    Page,
    Position,
    operation,
)


@operation("actors")
async def list_actors(
    broker: Admin,
    layer: Annotated[str, "Only actors of this supervisor, such as node, sessions or connections."] = "",
    name: Annotated[str, "Only actors whose name has this prefix."] = "",
    after: Position = 0,
    limit: Limit = AT_ONCE,
) -> Page[ActorRow]:
    """Actors under their supervisors, with what waits in their mailboxes and how much they have handled."""
    rows = list(islice(broker.actors(layer, name), after, after + limit))
    await trio.lowlevel.checkpoint()
    return Page(rows, after + limit if len(rows) == limit else None)
