"""Every key of the configuration: a reload applies it, and no part of a running broker goes by the former value; or the
reload says that it needs a restart.

Values that can be told from any other are looked for in the whole node after the reload. For the others, and for what
a value is computed into, something shows the change.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.broker.node.test_reconfiguring import CHANGES, other
from tests.broker.room import Room, room
from tests.wire import Wire
from trunkline.config.config import NEED_RESTART, WHOLE, Config, key_paths, reloaded
from trunkline.config.errors import ConfigError
from trunkline.config.listener_settings import ListenerSettings
from trunkline.config.mqtt_settings import ZoneSettings
from trunkline.config.reader import from_mapping

if TYPE_CHECKING:
    from pathlib import Path

    from trunkline.config.key_path import Keys

#: Tried in turn, for what no part of the broker has by chance.
ODD: Final = (12_347, 12_347.0625, 9_000_011, 1.6171875, 0.0078125, "61.5%", "85.5%", "12347/s", "12347odd")


@pytest.mark.parametrize("path", list(key_paths()), ids=".".join)
def test_what_is_not_applied_stays_as_it_was(path: Keys) -> None:
    """So no part of the broker sees a value that another one does not."""
    old, marker = Config(), object()
    section, *rest = path
    value = marker if not rest else getattr(old, section).model_copy(update={rest[0]: marker})
    new = Config.model_construct(None, **{name: getattr(old, name) for name in Config.model_fields} | {section: value})
    assert (attrgetter(".".join(path))(reloaded(old, new)) is marker) == (path not in NEED_RESTART)


def odd_value(table: Callable[[Any], Mapping[str, Any]], value_in: Callable[[Config], object]) -> Any:
    """One that can be told from any other, if the key takes such a value."""
    for value in ODD:
        try:
            held = value_in(from_mapping(table(value)))
        except ConfigError:
            continue
        if held == value and isinstance(held, int | float | str) and not isinstance(held, bool):
            return held
    return None


def _odd_values() -> Iterator[tuple[Keys, Any]]:
    for section, *rest in key_paths():
        if section not in WHOLE and (section, *rest) not in NEED_RESTART:
            path = (section, rest[0])
            value = odd_value(lambda value, path=path: {path[0]: {path[1]: value}}, attrgetter(".".join(path)))
            if value is not None:
                yield path, value


ODD_VALUES: Final = dict(_odd_values())


def parts_of(node: object) -> Iterator[tuple[object, object]]:
    """Everything that the node holds on to, and what holds it."""
    seen: set[int] = set()
    waiting: deque[object] = deque([node])
    while waiting:
        holder = waiting.popleft()
        if id(holder) in seen:
            continue
        seen.add(id(holder))
        for held in _held(holder):
            yield holder, held
            if not isinstance(held, int | float | str | bytes | type | types.ModuleType):
                waiting.append(held)


def _held(holder: Any) -> list[Any]:
    if isinstance(holder, Mapping):
        return [*holder, *holder.values()]
    if isinstance(holder, list | tuple | set | frozenset | deque):
        return list(holder)
    if isinstance(holder, partial):
        return [holder.func, *holder.args, *holder.keywords.values()]
    if isinstance(holder, types.MethodType):
        return [holder.__self__]
    if isinstance(holder, types.FunctionType):
        return [cell.cell_contents for cell in holder.__closure__ or () if cell != types.CellType()]
    module = type(holder).__module__
    if not module.startswith("trunkline.") or module.startswith("trunkline.testing"):
        return []
    slots = {name for kind in type(holder).__mro__ for name in getattr(kind, "__slots__", ())}
    values = [getattr(holder, name, None) for name in sorted(slots) if isinstance(name, str)]
    return [*getattr(holder, "__dict__", {}).values(), *values]


def at(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"listeners": [{"url": "tcp://127.0.0.1:0", "name": "one", **value}]}


@pytest.mark.parametrize("path", ODD_VALUES, ids=".".join)
async def test_no_part_of_the_broker_keeps_the_former_value(path: Keys, tmp_path: Path) -> None:
    (section, key), value = path, ODD_VALUES[path]
    stored = {"path": str(tmp_path / "store"), "durability": "os"}
    before = {"store": stored, **at({})}
    async with room(**{**before, section: {**before.get(section, {}), key: value}}) as here:
        if section == "session":  # these limits change for clients that are connected, too
            await here.stay("before")
        assert holders(here, value)
        await here.admin.reconfiguring.apply(other(before))
        await wait_all_tasks_blocked()
        await here.client("after")
        assert here.node.storing is not None
        await here.node.storing._writer.read(lambda engine: None)  # its thread has done what it was asked before
        # what CONNACK has told the one that was there before stays
        stays = {"Channel", "Ledger", "dict"} if path == ("session", "max_awaiting_rel") else set()
        assert holders(here, value) == stays


def in_zone(value: Mapping[str, Any]) -> dict[str, Any]:
    return {"zones": {"z": value}, "listeners": [{"url": "tcp://127.0.0.1:0", "name": "one", "zone": "z"}]}


def odd_keys(
    keys: Iterable[str], table: Callable[[Mapping[str, Any]], Mapping[str, Any]], part: Callable[[Config], object]
) -> dict[str, Any]:
    """Of these keys of a `part` of the configuration, those that take a value which can be told from any other."""
    found = {key: odd_value(lambda value, key=key: table({key: value}), _read(part, key)) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


def _read(part: Callable[[Config], object], key: str) -> Callable[[Config], object]:
    return lambda config: getattr(part(config), key)


async def check_that_it_is_forgotten(
    table: Callable[[Mapping[str, Any]], dict[str, Any]], key: str, value: object
) -> None:
    """After a reload without the key, with a client that comes then."""
    async with room(**table({key: value})) as here:
        assert holders(here, value)
        await here.admin.reconfiguring.apply(other(table({})))
        await wait_all_tasks_blocked()
        (listener,) = here.node.listeners
        wire = Wire(await trio.open_tcp_stream(*listener.address[:2]), patience=60)
        await wire.connect("after")
        assert holders(here, value) == set()
        await wire.abort()


ODD_IN_ZONES: Final = odd_keys(ZoneSettings.model_fields, in_zone, lambda config: config.zones["z"])
ODD_LISTENERS: Final = odd_keys(ListenerSettings.model_fields, at, lambda config: config.listeners[0])


@pytest.mark.parametrize("key", ODD_IN_ZONES)
async def test_no_part_of_the_broker_keeps_the_former_value_of_a_zone(key: str) -> None:
    await check_that_it_is_forgotten(in_zone, key, ODD_IN_ZONES[key])


@pytest.mark.parametrize("key", ODD_LISTENERS)
async def test_no_part_of_the_broker_keeps_the_former_value_of_a_listener(key: str) -> None:
    await check_that_it_is_forgotten(at, key, ODD_LISTENERS[key])


def test_of_every_key_something_shows_that_it_is_applied() -> None:
    """Or the key is named as one that needs a restart, with the reason."""
    keys, shown = (
        set(key_paths()),
        ODD_VALUES.keys() | CHANGES.keys() | {path for path in key_paths() if path[0] == "log"},
    )
    assert keys == shown | NEED_RESTART.keys()
    assert not shown & NEED_RESTART.keys()


def holders(here: Room, value: object) -> set[str]:
    kinds = {type(holder) for holder, held in parts_of(here.node) if type(held) is type(value) and held == value}
    return {kind.__name__ for kind in kinds}
