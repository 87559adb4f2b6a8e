"""Reloading, on SIGHUP or by `trunkline ctl reload`."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trunkline.broker.security import SecurityError
from trunkline.config.config import changes
from trunkline.config.errors import ConfigError, Unusable
from trunkline.management import logs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trunkline.broker.node import Node
    from trunkline.config.section import PluginSettings

_logger = logging.getLogger("trunkline")


class ReloadError(Unusable[str]):
    """The configuration or one of its files is wrong; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Changes that a reload does not apply."""

    #: Keys that have changed and need a restart.
    restart: list[str]
    #: The commands of `trunkline ctl` that apply changes of plugins: "plugins reload bans".
    plugins: list[str]


def reload(broker: Node) -> Pending:
    """Read password, access rule and TLS files again, and the settings of the log. The result is logged.

    Raises:
        ReloadError: something is wrong.
    """
    try:
        new = broker.config if broker.read is None else broker.read()
        with nullcontext() if broker.read is None else logs.switching(new.log):
            broker.reload()
    except (ConfigError, SecurityError) as error:
        problems = list(map(str, error.problems))
    except OSError as error:
        problems = [str(error)]
    except Exception as error:  # no error in a reload ends a broker
        _logger.exception("a reload crashed")
        problems = [f"{type(error).__name__}: {error}"]
    else:
        restart = [key for key in changes(broker.config, new) if not key.startswith(("log.", "plugins."))]
        pending = Pending(restart, [] if broker.read is None else list(_steps(broker.plugins.enabled(), new.plugins)))
        words = [f"a restart is needed for {', '.join(restart)}"] if restart else []
        words += [f"`trunkline ctl {step}` applies the changes there" for step in pending.plugins]
        if words:
            _logger.warning("reloaded; %s", "; ".join(words))
        else:
            _logger.info("reloaded")
        return pending
    for problem in problems:
        _logger.error("not reloaded: %s", problem)
    raise ReloadError(problems)


def _steps(running: Mapping[str, PluginSettings], wanted: Mapping[str, PluginSettings]) -> Iterator[str]:
    """The steps from the running plugins to the configured ones."""
    for name in sorted(running.keys() | wanted.keys()):
        settings = wanted.get(name)
        on = settings is not None and settings.enabled
        if name not in running:
            if on:
                yield f"plugins enable {name}"
        elif not on:
            yield f"plugins disable {name}"
        elif running[name] != settings:
            yield f"plugins reload {name}"
