"""User properties of a message that demand something of its stream, which the stream may have to refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.streams.lives import TTL, check_ttl
from trunkline.streams.rollups import ROLLUP, check_rollup

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.mqtt.properties import Properties
    from trunkline.streams.config import StreamConfig

_CHECKS: Final[dict[str, Callable[[StreamConfig, str], None]]] = {ROLLUP: check_rollup, TTL: check_ttl}


def is_demanding(properties: Properties) -> bool:
    # without a generator: it is asked for each message
    for name, value in properties.get("user_property", ()):  # noqa: SIM110
        if value and name in _CHECKS:
            return True
    return False


def check_demands(config: StreamConfig, properties: Properties) -> None:
    """
    Raises:
        InvalidLife, LifeForbidden, RollupForbidden: the stream does not do that.
    """
    for name, value in properties.get("user_property", ()):
        check = _CHECKS.get(name)
        if check is not None:
            check(config, value)
