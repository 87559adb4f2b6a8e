"""Listeners of a running broker. Changes last until it ends; what stays is written in the configuration."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trunkline.broker.net.listeners import ListenError
from trunkline.broker.node.admin import Admin
from trunkline.broker.views import ListenerView
from trunkline.config.addresses import NATS, shown_address
from trunkline.config.config import Config
from trunkline.config.errors import SecurityError
from trunkline.config.fields import field_at
from trunkline.config.key_path import dotted
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.units import accepted, own_words
from trunkline.management.operations.registry import (
    AT_ONCE,
    BadRequest,
    Limit,
    Page,
    Position,
    Refused,
    answering,
    at_first,
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


def _row(view: ListenerView) -> ListenerRow:
    addresses = ", ".join(map(shown_address, view.addresses))
    return ListenerRow(view.name, view.settings.url, addresses, view.state, view.connections, view.settings.zone)


def listeners_here(broker: Admin) -> Iterator[ListenerView]:
    """Those that accept here: another worker than the first one accepts no clients of NATS."""
    return (each for each in broker.listeners if broker.is_first or each.settings.address.scheme not in NATS)


def _changed(broker: Admin, view: ListenerView) -> ListenerRow:
    """
    Raises:
        Elsewhere: it is changed, but accepts nothing here.
    """
    if not broker.is_first and view.settings.address.scheme in NATS:
        raise at_first(broker, "the clients of NATS are")
    return _row(view)


@contextmanager
def _refusing() -> Generator[None]:
    """Turns what a listener cannot do into the answer."""
    try:
        yield
    except (ListenError, SecurityError) as error:
        raise Refused(str(error)) from error


def _problem(detail: ErrorDetails) -> str:
    path = detail["loc"]
    field = field_at(ListenerSettings, path)[1]
    words = own_words(detail) or (f"accepted is {accepted(field)}" if field is not None else detail["msg"])
    return f"{dotted(path)}: {words}" if path else words


@operation("listeners.list")
def list_listeners(broker: Admin, after: Position = 0, limit: Limit = AT_ONCE) -> Page[ListenerRow]:
    """Listeners, and how many connections each has."""
    return page_at(list(map(_row, listeners_here(broker))), after, limit)


@operation("listeners.add")
async def add_listener(
    broker: Admin, url: Annotated[str, "Its URL; a query sets further keys of a listener."]
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
    with _refusing():
        return _changed(broker, await broker.listeners.add(settings))


@operation("listeners.pause")
def pause_listener(broker: Admin, name: Name) -> ListenerRow:
    """Accept no connections until `resume`; new ones wait in the system's backlog. Clients stay connected."""
    with answering(), _refusing():
        return _changed(broker, broker.listeners.pause(name))


@operation("listeners.resume")
async def resume_listener(broker: Admin, name: Name) -> ListenerRow:
    """Accept connections again after `pause` or `drain`."""
    with answering(), _refusing():
        return _changed(broker, await broker.listeners.resume(name))


@operation("listeners.drain")
def drain_listener(broker: Admin, name: Name, rate: Rate = 100) -> ListenerRow:
    """Close the listening sockets, and disconnect the clients little by little, so that they come back elsewhere. New
    connections are refused until `resume`, which ends the draining."""
    with answering():
        return _changed(broker, broker.listeners.drain(name, rate))


@operation("listeners.remove")
def remove_listener(broker: Admin, name: Name) -> dict[str, object]:
    """Close a listener and disconnect its clients at once. Their sessions stay."""
    views = [view for view in broker.listeners if view.name == name]
    with answering():
        broker.listeners.remove(name)
    _changed(broker, views[0])
    return {"removed": name}
