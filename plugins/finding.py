"""Which plugins are installed: entry points in the group `trunkline.plugins`."""

from __future__ import annotations

import importlib
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from typing import TYPE_CHECKING, Final, cast

import trio

from trunkline.config.key_path import nearest
from trunkline.plugins.declaring import settings_of
from trunkline.plugins.errors import PluginError

if TYPE_CHECKING:
    from trunkline.plugins.declaring import Factory, Settings

GROUP: Final = "trunkline.plugins"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Installed:
    """A plugin that a package offers."""

    name: str
    #: Where it is: `package.module:attribute`.
    value: str
    package: str
    version: str


def check_name(name: str) -> None:
    """Raises PluginError if the name is not valid for a plugin."""
    if _NAME.fullmatch(name) is None:
        raise PluginError(
            [f"{name!r}: a plugin's name has lower-case letters, digits and single hyphens, and begins with a letter"]
        )


def installed() -> dict[str, Installed]:
    """The installed plugins by name. Installed packages are read anew, so that new ones are found."""
    importlib.invalidate_caches()
    return {
        point.name: Installed(
            point.name,
            point.value,
            point.dist.name if point.dist else "",
            point.dist.version if point.dist else "",
        )
        for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)
    }


def shipped() -> list[str]:
    """The plugins that come with the broker."""
    return [plugin.name for plugin in installed().values() if plugin.package == "trunkline"]


def find(name: str) -> EntryPoint:
    """The entry point of the plugin with this name.

    Raises:
        PluginError: none is installed, or two are.
    """
    check_name(name)
    points = list(entry_points(group=GROUP, name=name))
    if not points:
        known = installed()
        hint = nearest(name, known) or f"; installed are {', '.join(known) or 'none'}"
        raise PluginError([f"no plugin {name!r} is installed{hint}"])
    if len({point.value for point in points}) > 1:
        offers = " and ".join(f"{point.dist.name if point.dist else '?'} ({point.value})" for point in points)
        raise PluginError([f"{name!r} is offered twice: by {offers}"])
    return points[0]


def load(name: str, *, fresh: bool = False) -> Factory:
    """The plugin with this name. `fresh` imports its module anew, for code that has changed; for a package, all its
    modules.

    Raises:
        PluginError: none is installed, two are, or it cannot be imported.
    """
    return _imported(find(name), fresh)


async def load_aside(name: str, *, fresh: bool = False) -> Factory:
    """As `load`, for a running broker: modules that are not imported yet are imported in a worker thread, with those
    that the plugin imports when it is made.

    Raises:
        PluginError: as `load` does.
    """
    point = find(name)
    if fresh or point.module not in sys.modules:
        factory = await trio.to_thread.run_sync(_imported, point, fresh)
    else:
        factory = _imported(point, fresh)
    if late := [name for name in settings_of(factory).imports if name not in sys.modules]:
        await trio.to_thread.run_sync(_import_all, late)
    return factory


def _import_all(names: list[str]) -> None:
    for name in names:
        with suppress(ImportError):  # the plugin says what is missing
            importlib.import_module(name)


def _imported(point: EntryPoint, fresh: bool) -> Factory:
    former = {name: sys.modules.pop(name) for name in list(sys.modules) if fresh and _is_in(name, point.module)}
    try:
        factory = point.load()
    except (Exception, SystemExit) as error:  # a module may raise anything, and must not end the broker
        sys.modules.update(former)
        hint = f"; is its extra installed? {point.extras}" if point.extras else ""
        if isinstance(error, ModuleNotFoundError) and error.name == point.module.partition(".")[0]:
            hint = "; if it was installed with --editable while this process ran, restart the process"
        raise PluginError([f"{point.value} cannot be imported: {_told(error, point.module)}{hint}"]) from error
    if not callable(factory):
        raise PluginError([f"{point.name}: {point.value} is {factory!r:.80}, which cannot be called"])
    return cast("Factory", factory)


def _told(error: BaseException, module: str) -> str:
    """The error, behind the line of the plugin's code that raised it or that called what raised it."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{error.filename}:{error.lineno}: {type(error).__name__}: {error.msg}"
    package = module.rpartition(".")[0] or module
    lines = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if _is_in(frame.f_globals.get("__name__", ""), package)
    ]
    return ": ".join(filter(None, (*lines[-1:], type(error).__name__, str(error))))


def _is_in(name: str, module: str) -> bool:
    """Whether it is the module, or within it if the module is a package."""
    return name == module or name.startswith(f"{module}.")


def settings_model(name: str) -> type[Settings]:
    """The settings of an installed plugin.

    Raises:
        PluginError: as `load` and `settings_of` do.
    """
    return settings_of(load(name))
