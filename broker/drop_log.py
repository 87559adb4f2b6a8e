"""Logs dropped messages and refused subscriptions, at a level that depends on the reason."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from trunkline.broker.metrics import DropReason
from trunkline.mqtt.reasons import name_of

if TYPE_CHECKING:
    from trunkline.broker.log_throttle import Occurrences

_logger = logging.getLogger("trunkline.dropped")
_subscribing = logging.getLogger("trunkline.session")

#: Intended by configuration or client, or nothing is lost. All other reasons indicate a fault, and are warnings.
_EXPECTED: Final = frozenset(
    {
        DropReason.NO_SUBSCRIBERS,
        DropReason.NO_LOCAL,
        DropReason.REDISPATCHED,
        DropReason.HOOK,
        DropReason.DELIVERY_HOOK,
        DropReason.EXPIRED,
        DropReason.QOS0_NOT_STORED,
        DropReason.REFUSED,
        DropReason.SESSION_ENDED,
        DropReason.UNRELEASED,
        DropReason.UNSUBSCRIBED,
        DropReason.WRONG_LAST,
    }
)


def say_dropped(reason: DropReason, times: Occurrences) -> None:
    """Write a record about the messages that were dropped for a reason."""
    level = logging.INFO if reason in _EXPECTED else logging.WARNING
    client_id, topic = times.last
    _logger.log(
        level,
        "%s for %s: %s (%sclient %.200s, topic %.200s)",
        times.counted("message", "dropped"),
        times.apart("client"),
        reason.word.replace("_", " "),
        times.example,
        client_id or "(the broker)",
        topic,
        extra={"reason": reason.word, "count": times.count, "clients": len(times.whom), "topic": topic},
    )


def say_refused(reason: int, times: Occurrences) -> None:
    """Write a record about the subscriptions that were refused for a reason."""
    word = name_of(reason)
    client_id, filter = times.last
    _subscribing.warning(
        "%s of %s: %s (%sclient %.200s, filter %.200s%s)",
        times.counted("subscription", "refused"),
        times.apart("client"),
        word.replace("_", " "),
        times.example,
        client_id,
        filter,
        times.why and f": {times.why}",
        extra={"reason": word, "count": times.count, "clients": len(times.whom), "filter": filter},
    )
