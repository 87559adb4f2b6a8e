"""What SIGHUP and `trunkline ctl reload` do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from trunkline.broker.config import Config, ConfigError, changes
from trunkline.broker.security import SecurityError
from trunkline.management import logs

if TYPE_CHECKING:
    from collections.abc import Callable

_logger = logging.getLogger("trunkline")


class Reloadable(Protocol):
    config: Config
    #: Reads the configuration anew; None where the broker is part of somebody else's process, with a log of its own.
    read: Callable[[], Config] | None

    def reload(self) -> None: ...


class ReloadError(Exception):
    """Something is wrong with what was read, and everything stays as it was. `problems` says all of it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def reload(broker: Reloadable) -> list[str]:
    """Read password and access rule files again, and the settings of the log. Returns the keys that have changed and
    need a restart. What happened is logged.

    Raises:
        ReloadError: something is wrong.
    """
    try:
        new = broker.config if broker.read is None else broker.read()
        broker.reload()
        if broker.read is not None:
            logs.configure(new.log)
    except (ConfigError, SecurityError) as error:
        problems = list(map(str, error.problems))
    except OSError as error:
        problems = [str(error)]
    else:
        later = [key for key in changes(broker.config, new) if not key.startswith("log.")]
        if later:
            _logger.warning("reloaded; a restart is needed for %s", ", ".join(later))
        else:
            _logger.info("reloaded")
        return later
    for problem in problems:
        _logger.error("not reloaded: %s", problem)
    raise ReloadError(problems)
