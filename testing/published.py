"""A message that was published in a test's broker, and its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.guid import to_text
from trunkline.broker.traced_message import DROPPED, HELD, NO_SUBSCRIBERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.traced_message import Outcome, TracedMessage
    from trunkline.mqtt.properties import Properties

#: Messages that a failure shows, and clients that a message shows.
MAX_SHOWN: Final = 8
#: Characters of a payload, and of a client id, that a line shows.
_WIDTH: Final = 80


class Published:
    """A published message with its current outcome."""

    __slots__ = ("_knows", "_record")

    def __init__(self, record: TracedMessage, knows: Callable[[str], bool]) -> None:
        """`knows` says whether there was a client with this id."""
        self._record = record
        self._knows = knows

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Published) and self._record is other._record

    def __hash__(self) -> int:
        return hash(self._record)

    @property
    def topic(self) -> str:
        """As it was routed: a hook may have changed it."""
        return self._record.topic

    @property
    def payload(self) -> bytes:
        return self._record.payload

    @property
    def qos(self) -> int:
        return self._record.qos

    @property
    def retain(self) -> bool:
        return self._record.retain

    @property
    def properties(self) -> Properties:
        return self._record.properties

    @property
    def publisher(self) -> str:
        """Client id; empty for the broker's own messages."""
        return self._record.publisher

    @property
    def guid(self) -> str:
        """The broker's id of the message: 32 hexadecimal digits, which sort by time."""
        return to_text(self._record.guid)

    @property
    def time(self) -> float:
        """When the broker got it, in seconds since the epoch by the broker's clock."""
        return self._record.published_at

    @property
    def number(self) -> int:
        """In the order in which messages were published."""
        return self._record.number

    # Outcome

    @property
    def routed(self) -> bool:
        """Whether the broker accepted it and found its subscribers."""
        return self._record.routed

    @property
    def refused(self) -> str:
        """Why the broker did not take it: `not_authorized`, `hook`, `receive_maximum`, `session_ended`,
        `await_rel_timeout`, `payload_too_large`, `stream_full` or `wrong_last`, or `fault` for one of
        `broker.faults`. Empty if it did."""
        reason = self._record.reason if self._record.state == DROPPED else ""
        return "" if reason == NO_SUBSCRIBERS else reason

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """By client id, for all clients that it was to go to."""
        return {client_id: self._record.outcome(client_id) for client_id in self._record.clients}

    def outcome(self, client_id: str) -> Outcome:
        """The outcome for one client. It has no steps if the message was not for this client.

        Raises:
            LookupError: there was no such client.
        """
        if client_id not in self._record.clients and not self._knows(client_id):
            raise LookupError(f"no client {client_id!r} has connected, and the message went to {self._names}")
        return self.fate(client_id)

    def fate(self, client_id: str) -> Outcome:
        """As `outcome`, for failures that say themselves who the client is."""
        return self._record.outcome(client_id)

    @property
    def _names(self) -> str:
        return ", ".join(map(_cut, self._record.clients[:MAX_SHOWN])) or "nobody"

    @property
    def delivered_to(self) -> tuple[str, ...]:
        """Client ids of those to whose connection it was written, acknowledged or not."""
        return tuple([client_id for client_id, outcome in self.outcomes.items() if outcome.deliveries])

    @property
    def dropped(self) -> dict[str, str]:
        """By client id, why it did not get there."""
        return {client_id: outcome.reason for client_id, outcome in self.outcomes.items() if outcome.state == DROPPED}

    def __str__(self) -> str:
        """One line, without the outcome."""
        payload = repr(self.payload)
        if len(payload) > _WIDTH:
            payload = f"{payload[:_WIDTH]}… ({len(self.payload)} bytes)"
        return f"{self.topic} {payload} QoS {self.qos}{' RETAIN' if self.retain else ''} {from_whom(self.publisher)}"

    def __repr__(self) -> str:
        return f"<{self}; {self.ends}>"

    @property
    def ends(self) -> str:
        """The outcome in one line, beginning with the clients that it did not reach."""
        outcomes = sorted(self.outcomes.items(), key=lambda item: item[1].state != DROPPED)
        ends = [f"{_cut(client_id)}: {_short(outcome)}" for client_id, outcome in outcomes[:MAX_SHOWN]]
        if len(outcomes) > MAX_SHOWN:
            ends.append(f"… and {len(outcomes) - MAX_SHOWN} more")
        if self.refused:
            ends.append(f"not taken ({self.refused})")
        elif not self.routed:
            ends.append(HELD)
        return ", ".join(ends) or "no subscribers"


def _cut(client_id: str) -> str:
    return repr(client_id if len(client_id) <= _WIDTH else f"{client_id[:_WIDTH]}…")


def _short(outcome: Outcome) -> str:
    return f"{outcome.state} ({outcome.reason})" if outcome.reason else outcome.state


def from_whom(publisher: str) -> str:
    return f"from {publisher!r}" if publisher else "from the broker itself"
