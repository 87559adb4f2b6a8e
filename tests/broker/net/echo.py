"""Another protocol than MQTT: it sends back what it gets."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from trunkline.actors import Scheduler, Supervisor
from trunkline.broker.alarms import Alarms
from trunkline.broker.limit_report import LimitReport
from trunkline.broker.metrics import Metrics
from trunkline.broker.net.protocol import LayerFactory, ProtocolActor
from trunkline.broker.net.services import NetServices
from trunkline.broker.net.transport import Event, Transport
from trunkline.config.config import Config
from trunkline.config.listener_settings import ListenerSettings
from trunkline.hooks.chain import Hooks


class Echo(ProtocolActor[Event]):
    in_handshake = False
    pending = 0

    def __init__(self, transport: Transport, on_closed: Callable[[ProtocolActor[Any]], None]) -> None:
        self._transport, self._on_closed = transport, on_closed
        self.followed = 0

    @property
    def peer(self) -> tuple[str, int] | None:
        return self._transport.peer

    def init(self) -> None:
        self._transport.start(self.ref.cast, self)

    def handle(self, message: Event) -> None:
        if isinstance(message, bytes):
            self._transport.send(message)
        else:
            self.stop()

    def follow_settings(self) -> None:
        self.followed += 1

    def terminate(self, reason: object) -> None:
        self._on_closed(self)
        self._transport.close()


class EchoProtocol:
    """At one listener."""

    def __init__(self, config: Config, settings: ListenerSettings | None) -> None:
        self.settings = settings
        self.configured = 0

    def connect(self, transport: Transport, on_closed: Callable[[ProtocolActor[Any]], None]) -> ProtocolActor[Any]:
        return Echo(transport, on_closed)

    def configure(self, config: Config, settings: ListenerSettings | None) -> None:
        self.settings = settings
        self.configured += 1


@asynccontextmanager
async def net_services(layers: Sequence[LayerFactory] = ()) -> AsyncIterator[NetServices]:
    """What listeners need of a node, without one. Connections are fed by tasks."""
    scheduler, supervisor, metrics = Scheduler(), Supervisor(name="connections"), Metrics()
    async with trio.open_nursery() as nursery:

        async def start_background(_name: str, run: Callable[[], Any]) -> None:
            nursery.start_soon(run)

        await nursery.start(scheduler.run)
        await nursery.start(supervisor.run, scheduler)
        alarms, report = Alarms(Hooks(), lambda: 0.0), LimitReport(metrics, scheduler.call_at)
        yield NetServices(
            scheduler,
            None,
            supervisor,
            metrics,
            alarms,
            report,
            start_background,
            nursery.start_soon,
            lambda: 0.0,
            layers,
        )
        nursery.cancel_scope.cancel()
