"""What the processes of a broker of its own have in common when they start, be it one or a supervisor of several."""

from __future__ import annotations

import logging
import os
import platform
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from trunkline import __version__
from trunkline.config.store_place import store_path, workers_path
from trunkline.config.units import NEVER
from trunkline.store import StoreUnavailable
from trunkline.store.replacing import finish_what_was_begun

if TYPE_CHECKING:
    from trunkline.config.config import Config

_logger = logging.getLogger("trunkline")

#: Seconds that a broker has to end, besides those of each plugin.
MAX_END: Final = 30.0
MAX_END_EACH: Final = 10.0


def time_to_end(config: Config) -> float:
    """Seconds after which the process ends all the same."""
    return MAX_END + MAX_END_EACH * len(config.plugins)


def log_start(config: Config, source: str) -> None:
    python = platform.python_version()
    _logger.info("trunkline %s, Python %s, process %d, %s", __version__, python, os.getpid(), source)
    _logger.info(_about_expiry(config))


def _about_expiry(config: Config) -> str:
    """Said aloud, as other brokers keep them for ever."""
    seconds = config.session.expiry_interval
    if seconds == NEVER:
        return "sessions of MQTT 3.1 and 3.1.1 outlive their connections for ever (session.expiry_interval)"
    ends = f"end {timedelta(seconds=seconds)} after their connections" if seconds else "end with their connections"
    return f'sessions of MQTT 3.1 and 3.1.1 {ends}: session.expiry_interval, which may be "never"'


def check_alone(config: Config) -> None:
    """
    Raises:
        StoreError: the store is that of several workers, and is divided, or another process has it.
    """
    if config.durability(standalone=True) == "memory":
        return
    path = store_path(config.store, config.node).absolute()
    finish_what_was_begun(path)
    if workers_path(path).exists():
        raise StoreUnavailable(
            f"the store {path} is divided among several workers, and node.workers is 1: set it to their number, which "
            f"{workers_path(path).name} says, or bring all into one store with `trunkline store reshard 1`"
        )
