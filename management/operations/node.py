"""The broker as a whole: its status, metrics, configuration, log, alarms and hooks."""

import os
from typing import Annotated, Literal

from trunkline import __version__
from trunkline.broker.metrics import Gauges, Metrics, described
from trunkline.broker.node.admin import Admin
from trunkline.broker.views import HookRow, MetricRow, hook_rows
from trunkline.config.key_path import nearest
from trunkline.hooks.alarm import Alarm
from trunkline.management import logs
from trunkline.management.operations.listeners import listeners_here
from trunkline.management.operations.registry import (
    AT_ONCE,
    Limit,
    NotFound,
    Page,
    Position,
    Refused,
    operation,
    page_at,
)
from trunkline.management.reloading import ReloadError
from trunkline.management.reloading import reload as read_again

Level = Annotated[Literal["debug", "info", "warning", "error"] | None, "The lowest log level that is written."]

#: The rates that `status` shows, by the counter's name.
RATES = {
    "messages_received": "packets.publish.received",
    "messages_sent": "packets.publish.sent",
    "messages_dropped": "delivery.dropped",
    "bytes_received": "bytes.received",
    "bytes_sent": "bytes.sent",
}


@operation("status")
async def status(broker: Admin) -> dict[str, object]:
    """The state of the broker. Rates are per minute, averaged over the last one, five and fifteen minutes."""
    figures = await broker.figures()
    uptime, rates = broker.uptime, broker.rates(figures)
    return {
        "node": broker.config.node.name,
        "version": __version__,
        "pid": os.getpid(),
        "started_at": broker.wall() - uptime,
        "uptime": uptime,
        "listeners": [
            {
                "name": listener.name,
                "host": listener.address[0],
                "port": listener.address[1],
                "connections": listener.connections,
            }
            for listener in listeners_here(broker)
        ],
        "connections": figures["connections.count"],
        "sessions": figures["sessions.count"],
        "subscriptions": figures["subscriptions.count"],
        "retained": figures["retained.count"],
        "queued": figures["queue.count"],
        "inflight": figures["inflight.count"],
        "memory_bytes": figures["process.memory"],
        "store_bytes": figures["store.bytes"],
        "alarms": len(broker.alarms.active),
        "rates": {
            name: {window: round(rates[counter, window], 2) for window in ("1min", "5min", "15min")}
            for name, counter in RATES.items()
        },
    }


@operation("metrics")
async def metrics(
    broker: Admin,
    prefix: Annotated[str, "Only names with this prefix."] = "",
    after: Position = 0,
    limit: Limit = AT_ONCE,
) -> Page[MetricRow]:
    """Counters, which only grow, and gauges, which show the current state: those of all workers together."""
    texts = described(Metrics) | described(Gauges) | dict(broker.plugins.meanings())
    figures = await broker.node_figures()
    rows = [MetricRow(name, value, texts.get(name, "")) for name, value in figures.items() if name.startswith(prefix)]
    return page_at(rows, after, limit)


@operation("config.show")
def show_config(broker: Admin) -> dict[str, object]:
    """The configuration that the broker runs with. Secrets are not shown."""
    return broker.config.model_dump(mode="json")


@operation("reload")
async def reload(broker: Admin) -> dict[str, object]:
    """Read the configuration and its files again, as SIGHUP does, and apply what needs no restart."""
    try:
        pending = await read_again(broker)
    except ReloadError as error:
        raise Refused(f"not reloaded: {'; '.join(error.problems)}") from error
    return {"reloaded": True, "restart_needed_for": pending.restart, "failed": pending.failed}


@operation("log.level")
def log_level(broker: Admin, level: Level = None) -> dict[str, object]:
    """Show the log level, or change it until the next reload."""
    if level is not None:
        logs.set_level(level)
    return {"level": logs.level()}


@operation("log.packets")
def log_packets(
    broker: Admin,
    client_id: Annotated[str, "The client id; it need not be connected."],
    off: Annotated[bool, "Stop logging them."] = False,
) -> dict[str, object]:
    """Log the packets of one client, in both directions, as `log level debug` does for all new connections: their type
    and size, without payloads and passwords. It applies to later connections of the client, until the broker stops."""
    broker.clients.log_packets(client_id, not off)
    return {"packets_logged_of": broker.clients.logged}


# Alarms


@operation("alarms.list")
def list_alarms(broker: Admin, after: Position = 0, limit: Limit = AT_ONCE) -> Page[Alarm]:
    """Active alarms: conditions that an operator should know about, the oldest first."""
    return page_at(broker.alarms.active, after, limit)


@operation("alarms.history")
def list_past_alarms(broker: Admin, after: Position = 0, limit: Limit = AT_ONCE) -> Page[Alarm]:
    """The most recent past alarms, the oldest first."""
    return page_at(list(broker.alarms.history), after, limit)


@operation("alarms.clear")
def clear_alarm(broker: Admin, name: Annotated[str, "The alarm's name."]) -> dict[str, object]:
    """Clear an alarm. It is raised again if its condition is detected again."""
    active = [alarm.name for alarm in broker.alarms.active]
    if name not in active:
        raise NotFound(f"no alarm {name!r} is active{nearest(name, active)}")
    broker.alarms.deactivate(name)
    return {"cleared": name}


# Hooks


@operation("hooks.list")
def list_hooks(broker: Admin, after: Position = 0, limit: Limit = AT_ONCE) -> Page[HookRow]:
    """Callbacks at all hook points, in the order in which they run, with how often each has crashed."""
    return page_at(hook_rows(broker.hooks, broker.plugins.owner_of), after, limit)
