"""The state of brokers in a few lines, for the report of a failed test."""

from __future__ import annotations

import os
import sys
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from trunkline.testing.expecting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from trunkline.broker.views import RetainedRow, SubscriptionRow
    from trunkline.plugins.context import Client
    from trunkline.testing.broker import BrokerProxy
    from trunkline.testing.published import Published
    from trunkline.testing.running import Options

#: Lines of each kind, the last ones; and characters of each.
LINES: Final = 20
WIDTH: Final = 160
#: Characters of a message, with what became of it.
_MAX_MESSAGE: Final = 1600


#: Brokers that run in this process.
_running: dict[BrokerProxy[Any], None] = {}
#: Reports of others, which have ended in the test that is under way.
_ended: deque[str] = deque(maxlen=8)


@contextmanager
def listed(broker: BrokerProxy[Any], options: Options) -> Generator[None, None, None]:
    """For as long as a broker runs, which has no clients yet."""
    if options.record is not None:
        broker.record(options.record)
    _running[broker] = None
    try:
        yield
    finally:
        del _running[broker]
        if "PYTEST_CURRENT_TEST" in os.environ and not sys.is_finalizing():  # only pytest asks
            _ended.append(report(broker))


def running() -> list[BrokerProxy[Any]]:
    return list(_running)


def forget() -> None:
    """Another test begins."""
    _ended.clear()


def reports(others: Iterable[BrokerProxy[Any]] = ()) -> list[str]:
    """The reports of all brokers in this test but `others`."""
    return [*_ended, *(report(broker) for broker in _running if broker not in others)]


def report(broker: BrokerProxy[Any]) -> str:
    """Never raises: if the broker is gone, the report says so."""
    try:
        parts = [
            ", ".join(address.url for address in broker.listeners.values()) or "no listeners",
            _list("session", broker.sessions, _session),
            _list("subscription", broker.subscriptions, _subscription),
            _list("retained message", broker.retained, _retained),
            _list("alarm", broker.alarms, lambda alarm: f"{alarm.name}: {alarm.text}"),
            _list("closed connection", [row for row in broker.connections if not row.open]),
            _list("fault", list(broker.faults), lambda fault: repr(fault)[1:-1]),
            _list("message", broker.messages, _message, _MAX_MESSAGE) if broker.history else "",
        ]
    except Exception as error:  # noqa: BLE001 - the test's own failure matters more
        return f"the broker is gone: {error!r}"
    return "\n".join(part for part in parts if part)


def _list(name: str, rows: Sequence[Any], line: Callable[[Any], str] = str, width: int = WIDTH) -> str:
    left_out = f", the last {LINES}" if len(rows) > LINES else ""
    head = counted(len(rows), name) + left_out
    return "\n".join([head, *(_short(f"  {line(row)}", width) for row in rows[-LINES:])])


def _message(message: Published) -> str:
    """The outcome is not cut off."""
    return f"{_short(str(message))}; {message.ends}"


def _short(text: str, width: int = WIDTH) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _session(row: Client) -> str:
    waiting = f", {counted(row.queued, 'message')} queued" if row.queued else ""
    unacknowledged = f", {row.inflight} not acknowledged" if row.inflight else ""
    state = f"connected by {row.version}" if row.connected else "away"
    return f"{row.client_id}: {state}{waiting}{unacknowledged}"


def _subscription(row: SubscriptionRow) -> str:
    return f"{row.client_id} to {row.filter} at QoS {row.qos}"


def _retained(row: RetainedRow) -> str:
    return f"{row.topic}: {row.payload[:WIDTH]!r}"
