"""A session as plain values, and back, to go on in another place.

Only what msgpack knows: dict, list, str, bytes, int, float, bool and None. Deadlines are exported as seconds that are
left, with the wall clock of the export beside them, so that the time in between counts.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.session.revoked import Revoked
from trunkline.hooks.client import client_from_plain, client_to_plain
from trunkline.mqtt.packets import Will
from trunkline.mqtt.plain import (
    deadline_from,
    message_from_plain,
    message_to_plain,
    properties_from_plain,
    properties_to_plain,
    seconds_left,
)
from trunkline.router import Options, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.state import Session

#: The version of the exported format. Later versions can read it.
FORMAT: Final = 1


class UnknownFormat(ValueError):
    """The values were exported by a version that is newer than this one."""


def export_session(session: Session, now: float, wall: float) -> dict[str, Any]:
    """`now` is the node's time, `wall` the same moment in seconds since the epoch."""
    last_id, inflight = session.inflight.export()
    return {
        "format": FORMAT,
        "exported_at": wall,
        **head_to_plain(session, now),
        "subscriptions": sorted([filter, asdict(options)] for filter, options in session.subscriptions.items()),
        "unasked": sorted(session.unasked),
        "last_packet_id": last_id,
        # each begins with its key: the packet id, or priority and number
        "inflight": [
            [packet_id, state, message_to_plain(message, now), target_to_plain(target)]
            for packet_id, state, publication, target in inflight
            for message in publication.messages
        ],
        "queue": [
            [list(position), message_to_plain(message, now), target_to_plain(target), qos]
            for message, target, qos, position in session.queue.export()
        ],
        "awaiting_rel": [
            [packet_ids, weight, publication and message_to_plain(publication.messages[0], now)]
            for packet_ids, weight, publication in session.awaiting_rel.export()
        ],
    }


def head_to_plain(session: Session, now: float) -> dict[str, Any]:
    """Everything but subscriptions and messages."""
    return {
        "client": client_to_plain(session.client),
        "will": None if session.will is None else _will_to_plain(session.will),
        # seconds until now, 0 or less, in which the client was away; None if it is connected
        "left_at": seconds_left(session.left_at, now),
        "created_at": session.created_at,
        "expiry_interval": None if session.expiry_interval == inf else session.expiry_interval,
        "revoked": sorted(session.revoked or ()),
    }


def restore_session(
    plain: Mapping[str, Any],
    session: Session,
    subscriber: Subscriber,
    member: Callable[[str], Target[Subscriber] | None],
    now: float,
    wall: float,
) -> None:
    """Fill an empty session with the result of `export_session`. Its subscriptions must be routed before: `member`
    returns the subscriber's target in the group of a shared filter, or None if the group no longer exists.

    Raises:
        UnknownFormat: it was exported by a newer version.
    """
    if plain["format"] != FORMAT:
        raise UnknownFormat(f"session {session.client_id!r} has format {plain['format']}; only {FORMAT} is supported")
    then = now - max(0.0, wall - plain["exported_at"])  # the moment of the export in this node's time

    def target(value: Mapping[str, Any]) -> Target[Subscriber]:
        return target_from_plain(value, subscriber, member)

    session.subscriptions.update({filter: Options(**options) for filter, options in plain["subscriptions"]})
    session.unasked.update(plain["unasked"])
    # the connection of a client that had one ended with the node
    restore_head(plain, session, then, then)
    session.inflight.restore(
        plain["last_packet_id"],
        [
            (packet_id, state, message_from_plain(message, then), target(value))
            for packet_id, state, message, value in plain["inflight"]
        ],
        now,
    )
    session.queue.restore(
        [(message_from_plain(message, then), target(value), qos) for _, message, value, qos in plain["queue"]]
    )
    session.awaiting_rel.restore(
        [
            (packet_id, size, None if message is None else message_from_plain(message, then))
            for packet_id, size, message in plain["awaiting_rel"]
        ],
        now,
    )


def restore_head(plain: Mapping[str, Any], session: Session, then: float, gone: float) -> None:
    """Fill in what `head_to_plain` gave at the node time `then`; its subscriptions are there. A client that was
    connected left at `gone`."""
    session.client = client_from_plain(plain["client"])
    session.will = None if plain["will"] is None else _will_from_plain(plain["will"])
    session.left_at = gone if plain["left_at"] is None else deadline_from(plain["left_at"], then)
    session.created_at = plain["created_at"]
    session.expiry_interval = inf if plain["expiry_interval"] is None else plain["expiry_interval"]
    if plain["revoked"]:
        session.revoked = Revoked()
        for filter in plain["revoked"]:
            session.revoked.deny(filter)
        for filter in session.subscriptions:
            session.revoked.keep(filter)


def _will_to_plain(will: Will) -> dict[str, Any]:
    return {**asdict(replace(will, properties={})), "properties": properties_to_plain(will.properties)}


def _will_from_plain(plain: Mapping[str, Any]) -> Will:
    values: dict[str, Any] = {**plain, "properties": properties_from_plain(plain["properties"])}
    return Will(**values)


def target_to_plain(target: Target[Subscriber]) -> dict[str, Any]:
    group = target.group
    return {
        "qos": target.qos,
        "retain_as_published": target.retain_as_published,
        "identifiers": list(target.identifiers),
        "shared": None if group is None else f"$share/{group.name}/{group.filter}",
    }


def target_from_plain(
    plain: Mapping[str, Any], subscriber: Subscriber, member: Callable[[str], Target[Subscriber] | None]
) -> Target[Subscriber]:
    shared = member(plain["shared"]) if plain["shared"] is not None else None
    if shared is not None:
        return shared
    target = Target(subscriber, Options(plain["qos"], retain_as_published=plain["retain_as_published"]))
    target.identifiers = tuple(plain["identifiers"])
    return target
