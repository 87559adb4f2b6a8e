"""Counts connections that their layers ended, and tells of them in the log: throttled, by listener and problem."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trunkline.broker.log_throttle import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Timer
    from trunkline.broker.log_throttle import Occurrences
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.net.transport import Failed

_logger = logging.getLogger("trunkline.connection")


class FailureLog:
    __slots__ = ("_metrics", "_throttle")

    def __init__(self, metrics: Metrics, call_at: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._metrics = metrics
        self._throttle: LogThrottle[tuple[str, str]] = LogThrottle(call_at, _say)

    def note(self, listener: str, peer: tuple[str, int] | None, failure: Failed) -> None:
        self._metrics.connections_broken += 1
        self._throttle.note((listener, failure.problem), "this process" if peer is None else peer[0], failure.detail)

    def flush(self) -> None:
        self._throttle.flush()


def _say(kind: tuple[str, str], times: Occurrences) -> None:
    listener, problem = kind
    address, detail = times.last
    _logger.warning(
        "%s: %s from %s: %s (%s%s%s)",
        listener,
        times.counted("connection", "failed"),
        times.apart("host"),
        problem,
        times.example,
        address,
        f": {detail}" if detail else "",
        extra={"listener": listener, "peer": address, "count": times.count},
    )
