"""The changes of a session as plain values, so that a store need not write the whole session again. They are recorded
only after `Changes` was made for the session; before that its containers record nothing.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

from trunkline.broker.session.export import awaiting_to_plain, head_to_plain, inflight_to_plain, queued_to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.broker.session.state import Session


class Changes:
    """The changes of one session since the last `take`."""

    __slots__ = ("_awaiting_rel", "_head", "_inflight", "_session", "subscriptions")

    def __init__(self, session: Session) -> None:
        self._session = session
        #: The filters that were subscribed to, or unsubscribed from.
        self.subscriptions: dict[str, None] = {}
        self._inflight = session.inflight.track()
        self._awaiting_rel = session.awaiting_rel.track()
        session.queue.track()
        session.changes = self
        self._head = self._compared()

    def _compared(self) -> tuple[object, ...]:
        session = self._session
        client = asdict(session.client)
        return client, session.will, session.left_at, session.expiry_interval, session.revoked

    def take(self, now: float, wall: float) -> dict[str, Any]:
        """The changes for `apply_changes`. A key alone means that its entry is removed, and so do options of None."""
        session, head = self._session, self._compared()
        subscriptions, self.subscriptions = self.subscriptions, {}
        changes: dict[str, Any] = {
            "exported_at": wall,
            "head": None if head == self._head else head_to_plain(session, now),
            "last_packet_id": session.inflight.last_id,
            "subscriptions": [
                [filter, options and asdict(options), filter in session.unasked]
                for filter in subscriptions
                for options in (session.subscriptions.get(filter),)
            ],
            "inflight": [
                [packet_id] if entry is None else inflight_to_plain(*entry, now)
                for packet_id in self._inflight.take()
                for entry in (session.inflight.exported(packet_id),)
            ],
            "queue": [
                [list(position)] if entry is None else queued_to_plain(position, *entry[:3], now)
                for position, entry in session.queue.take_changes().items()
            ],
            "awaiting_rel": [
                [packet_id] if entry is None else awaiting_to_plain(*entry, now)
                for packet_id in self._awaiting_rel.take()
                for entry in (session.awaiting_rel.exported(packet_id),)
            ],
        }
        self._head = head
        return changes


def apply_changes(plain: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The result of `export_session` after these changes."""
    elapsed: float = changes["exported_at"] - plain["exported_at"]
    after: dict[str, Any] = {**plain}
    if plain["left_at"] is not None:
        after["left_at"] -= elapsed
    after |= changes["head"] or {}
    after["exported_at"], after["last_packet_id"] = changes["exported_at"], changes["last_packet_id"]
    subscriptions, unasked = dict(plain["subscriptions"]), set(plain["unasked"])
    for filter, options, is_unasked in changes["subscriptions"]:
        subscriptions[filter] = options
        (unasked.add if is_unasked else unasked.discard)(filter)
    after["subscriptions"] = sorted([filter, options] for filter, options in subscriptions.items() if options)
    after["unasked"] = sorted(unasked)
    after["inflight"] = _replayed(plain["inflight"], changes["inflight"], elapsed)
    after["awaiting_rel"] = _replayed(plain["awaiting_rel"], changes["awaiting_rel"], elapsed)
    queued = _replayed(plain["queue"], changes["queue"], elapsed)
    after["queue"] = sorted(queued, key=lambda each: (-each[0][0], each[0][1]))  # by priority, then by number
    return after


def _replayed(entries: list[list[Any]], changes: list[list[Any]], elapsed: float) -> list[list[Any]]:
    """New and advanced entries come last."""
    changed = [key for key, *_ in changes]
    kept = [[_aged(value, elapsed) for value in entry] for entry in entries if entry[0] not in changed]
    return kept + [entry for entry in changes if len(entry) > 1]


def _aged(value: Any, elapsed: float) -> Any:
    """A message expires that much sooner."""
    if not isinstance(value, dict):
        return value
    cell = cast("dict[str, Any]", value)
    return cell if cell.get("expires_in") is None else {**cell, "expires_in": cell["expires_in"] - elapsed}
