"""Says which limit acted, for which client, listener or host, how often: in the metrics, and throttled in the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trunkline.broker.log_throttle import LogThrottle

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.actors import Timer
    from trunkline.broker.log_throttle import Occurrences
    from trunkline.broker.metrics import LimitKind, Metrics

_logger = logging.getLogger("trunkline.limits")


class LimitReport:
    __slots__ = ("_metrics", "_throttle")

    def __init__(self, metrics: Metrics, call_at: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._metrics = metrics
        self._throttle: LogThrottle[LimitKind] = LogThrottle(call_at, _say)

    def acted(self, kind: LimitKind, whom: str, what: str) -> None:
        """`whom` is a client id, the name of a listener or a host, `what` the limit with its value, for the log."""
        self._metrics.limited[kind] += 1
        self._throttle.note(kind, whom, what)

    def flush(self) -> None:
        self._throttle.flush()


def _say(kind: LimitKind, times: Occurrences) -> None:
    noun = kind.noun
    whom, what = times.last
    _logger.warning(
        "%s acted%s for %s: %s (%s%s %.200s)",
        kind.counter,
        "" if times.first else f" {times.count:,} more times in the last minute",
        times.apart(noun),
        what,
        times.example,
        noun,
        whom or "(not known yet)",
        extra={"limit": kind.counter, "count": times.count, noun: whom},
    )
