"""What the listeners of a node share. It is passed in, so that a listener can be tested on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline.broker.net.listening_sockets import open_sockets
from trunkline.broker.node_use import ALONE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from trunkline.actors import Scheduler, Supervisor
    from trunkline.broker.alarms import Alarms
    from trunkline.broker.limit_report import LimitReport
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.net.listening_sockets import OpenSockets
    from trunkline.broker.net.poller import Poller
    from trunkline.broker.net.protocol import LayerFactory
    from trunkline.broker.node_use import NodeUse


@dataclass(slots=True, eq=False)
class NetServices:
    scheduler: Scheduler
    #: None where connections are fed by tasks.
    poller: Poller | None
    #: Of all connections.
    supervisor: Supervisor
    metrics: Metrics
    alarms: Alarms
    limit_report: LimitReport
    #: Runs a task by name, and again when it crashes.
    start_background: Callable[[str, Callable[[], Awaitable[object]]], Awaitable[None]]
    #: Runs a task that outlives what starts it.
    start_task: Callable[..., None]
    #: The time in seconds since the epoch.
    wall: Callable[[], float]
    #: Are put on the transport of each connection, above those of its listener; the first one at the bottom.
    layers: Sequence[LayerFactory] = ()
    #: Of a listener.
    open_sockets: OpenSockets = open_sockets
    #: What other shards use of the limits of the node.
    use: NodeUse = ALONE
