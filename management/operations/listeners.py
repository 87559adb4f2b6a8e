"""Listeners of a running broker. Changes last until it ends; what stays is written in the configuration."""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trunkline.broker.net.listener import Listener, State
from trunkline.broker.net.listeners import ListenError
from trunkline.config.addresses import shown_address
from trunkline.config.config import Config
from trunkline.config.errors import SecurityError
from trunkline.config.fields import field_at
from trunkline.config.key_path import dotted, nearest
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.units import accepted, own_words
from trunkline.management.operations.registry import (
    AT_ONCE,
    Administered,
    BadRequest,
    Limit,
    NotFound,
    Page,
    Position,
    Refused,
    operation,
    page_at,
)

Name = Annotated[str, "The listener's name, or its URL when it has none."]
Rate = Annotated[int, "Clients that are disconnected in a second; 0 disconnects all at once.", Interval(ge=0)]


@dataclass(frozen=True, slots=True)
class ListenerRow:
    name: str
    url: str
    #: Where it listens, separated by ", ": with the ports that the system chose.
    addresses: str
    state: str
    connections: int
    zone: str


def _row(listener: Listener) -> ListenerRow:
    settings = listener.settings
    connections = len(listener.acceptor.connections)
    return ListenerRow(
        settings.label,
        settings.url,
        ", ".join(map(shown_address, listener.addresses)),
        listener.state.value,
        connections,
        settings.zone,
    )


def _find(broker: Administered, name: str) -> Listener:
    for listener in broker.listeners:
        if listener.settings.label == name:
            return listener
    raise NotFound(f"no listener {name!r}{nearest(name, [each.settings.label for each in broker.listeners])}")


def _problem(detail: ErrorDetails) -> str:
    path = detail["loc"]
    field = field_at(ListenerSettings, path)[1]
    words = own_words(detail) or (f"accepted is {accepted(field)}" if field is not None else detail["msg"])
    return f"{dotted(path)}: {words}" if path else words


@operation("listeners.list")
def list_listeners(broker: Administered, after: Position = 0, limit: Limit = AT_ONCE) -> Page[ListenerRow]:
    """Listeners, and how many connections each has."""
    return page_at(list(map(_row, broker.listeners)), after, limit)


@operation("listeners.add")
async def add_listener(
    broker: Administered, url: Annotated[str, "Its URL; a query sets further keys of a listener."]
) -> ListenerRow:
    """Listen on one more address, until the broker ends. The same checks apply as in the configuration."""
    try:
        settings = ListenerSettings.model_validate(url)
        there = [listener.settings for listener in broker.listeners]
        sections = {name: getattr(broker.config, name) for name in Config.model_fields}
        Config.model_validate({**sections, "listeners": (*there, settings)})
    except ValidationError as error:
        raise BadRequest("; ".join(map(_problem, error.errors()))) from None
    if any(settings.files):
        raise Refused("credential files are read at the start: write this listener in the configuration")
    try:
        return _row(await broker.listeners.open(settings))
    except (ListenError, SecurityError) as error:
        raise Refused(str(error)) from error


@operation("listeners.pause")
def pause_listener(broker: Administered, name: Name) -> ListenerRow:
    """Accept no connections until `resume`; new ones wait in the system's backlog. Clients stay connected."""
    listener = _find(broker, name)
    if listener.state is State.CLOSED:
        raise Refused(f"{name!r} is closed")
    listener.pause()
    return _row(listener)


@operation("listeners.resume")
async def resume_listener(broker: Administered, name: Name) -> ListenerRow:
    """Accept connections again after `pause` or `drain`."""
    listener = _find(broker, name)
    if listener.state is State.CLOSED:
        try:
            await broker.listeners.listen(listener)
        except ListenError as error:
            raise Refused(str(error)) from error
    listener.resume()
    return _row(listener)


@operation("listeners.drain")
def drain_listener(broker: Administered, name: Name, rate: Rate = 100) -> ListenerRow:
    """Close the listening sockets, and disconnect the clients little by little, so that they come back elsewhere. New
    connections are refused until `resume`, which ends the draining."""
    listener = _find(broker, name)
    listener.close()
    broker.services.start_task(listener.disconnect_clients, rate)
    return _row(listener)


@operation("listeners.remove")
def remove_listener(broker: Administered, name: Name) -> dict[str, object]:
    """Close a listener and disconnect its clients at once. Their sessions stay."""
    broker.listeners.remove(_find(broker, name))
    return {"removed": name}
