"""Reloading, on SIGHUP or by `trunkline ctl reload`.

All that can change while the broker runs is applied, with the log and the plugins whose sections have changed: what
cannot, `trunkline.config.config.NEED_RESTART` names.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from trunkline.config.config import NEED_RESTART, changes
from trunkline.config.errors import ConfigError, SecurityError, Unusable
from trunkline.management import logs
from trunkline.plugins.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from trunkline.broker.node.admin import Admin
    from trunkline.config.section import PluginSettings
    from trunkline.plugins.manager import Plugins

_logger = logging.getLogger("trunkline")


class ReloadError(Unusable[str]):
    """The configuration or one of its files is wrong; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Changes that a reload has not applied."""

    #: Keys that have changed and need a restart.
    restart: list[str]
    #: What is wrong with single listeners and plugins. Those go on as they were, and the next reload tries again.
    failed: list[str]


async def reload(broker: Admin) -> Pending:
    """Read the configuration and its files again, and apply it, after reloads that were asked for before. The result is
    logged.

    Raises:
        ReloadError: something is wrong.
    """
    async with broker.reconfiguring.lock:
        return await _reload(broker)


async def _reload(broker: Admin) -> Pending:
    with refusing():
        # in a thread, as plugins that are new are imported
        new = broker.config if broker.read is None else await trio.to_thread.run_sync(broker.read)
        differ, former = changes(broker.config, new), broker.config.plugins
        with nullcontext() if broker.read is None else logs.switching(new.log):
            failed = await broker.reconfiguring.apply(new)
    failed += await _change_plugins(broker.plugins, former, new.plugins)
    pending = Pending([key for key in differ if tuple(key.split(".")) in NEED_RESTART], failed)
    for problem in failed:
        _logger.error("not applied: %s", problem)
    if pending.restart:
        _logger.warning("reloaded; a restart is needed for %s", ", ".join(pending.restart))
    else:
        _logger.info("reloaded")
    return pending


@contextmanager
def refusing() -> Generator[None]:
    """Around a reload: whatever goes wrong is logged, and refuses it.

    Raises:
        ReloadError: it is refused.
    """
    try:
        yield
        return
    except (ConfigError, SecurityError) as error:
        problems = list(map(str, error.problems))
    except OSError as error:
        problems = [str(error)]
    except Exception as error:  # no error in a reload ends a broker
        _logger.exception("a reload crashed")
        problems = [f"{type(error).__name__}: {error}"]
    for problem in problems:
        _logger.error("not reloaded: %s", problem)
    raise ReloadError(problems)


async def _change_plugins(
    plugins: Plugins, former: Mapping[str, PluginSettings], wanted: Mapping[str, PluginSettings]
) -> list[str]:
    """A plugin whose section has not changed stays as it is, even if an operator has started or stopped it."""
    problems: list[str] = []
    for name in sorted(former.keys() | wanted.keys()):
        settings, running = wanted.get(name), plugins.enabled().get(name)
        if settings == former.get(name) and name not in plugins.unapplied:
            continue
        plugins.unapplied.add(name)
        try:
            if settings is None or not settings.enabled:
                if running is not None:
                    await plugins.disable(name)
            elif running is None:
                await plugins.enable(name, settings)
            elif running != settings:
                await plugins.reload(name, settings)
        except PluginError as error:
            problems.append("; ".join(error.problems))
        else:
            plugins.unapplied.discard(name)
    return problems
