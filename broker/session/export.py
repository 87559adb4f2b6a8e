"""What a session has of one kind, and what messages came by, as plain values and back: dict, list, str, bytes, int,
float, bool and None."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import inf
from typing import TYPE_CHECKING, Any, cast

from trunkline.broker.session.revoked import Revoked
from trunkline.hooks.client import client_from_plain, client_to_plain
from trunkline.mqtt.packets import Will
from trunkline.mqtt.plain import plain
from trunkline.mqtt.properties import NO_PROPERTIES, Properties
from trunkline.router import Member, Options, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.state import Session
    from trunkline.router import Group


def head_to_plain(session: Session, now: float, *, ended: bool = False) -> dict[str, Any]:
    """Everything but subscriptions and messages. One that has `ended` is there for its messages only."""
    return {
        "client": client_to_plain(session.client),
        "will": None if session.will is None else will_to_plain(session.will),
        # seconds until now, 0 or less, in which the client was away; None if it is connected
        "left_at": None if session.left_at == inf else session.left_at - now,
        "created_at": session.created_at,
        "expiry_interval": None if session.expiry_interval == inf else session.expiry_interval,
        "revoked": sorted(session.revoked or ()),
        "ended": ended,
    }


def restore_head(stored: Mapping[str, Any], session: Session, then: float, gone: float) -> None:
    """Fill in what `head_to_plain` gave at the node time `then`; its subscriptions are there. A client that was
    connected left at `gone`."""
    session.client = client_from_plain(stored["client"])
    session.will = None if stored["will"] is None else will_from_plain(stored["will"])
    session.left_at = gone if stored["left_at"] is None else then + stored["left_at"]
    session.created_at = stored["created_at"]
    session.expiry_interval = inf if stored["expiry_interval"] is None else stored["expiry_interval"]
    if stored["revoked"]:
        session.revoked = Revoked()
        for filter in stored["revoked"]:
            session.revoked.deny(filter)
        for filter in session.subscriptions:
            session.revoked.keep(filter)


def will_to_plain(will: Will) -> dict[str, Any]:
    return {**asdict(replace(will, properties={})), "properties": plain(will.properties)}


def will_from_plain(stored: Mapping[str, Any]) -> Will:
    properties = {name: _from_plain(value) for name, value in stored["properties"].items()}
    values: dict[str, Any] = {**stored, "properties": cast("Properties", properties) if properties else NO_PROPERTIES}
    return Will(**values)


def _from_plain(value: object) -> object:
    # User properties are pairs.
    if isinstance(value, (list, tuple)):
        return tuple([_from_plain(each) for each in cast("tuple[object, ...]", value)])
    return value


def target_to_plain(target: Target[Subscriber]) -> dict[str, Any]:
    group = target.group
    return {
        "qos": target.qos,
        "retain_as_published": target.retain_as_published,
        "identifiers": list(target.identifiers),
        "shared": None if group is None else group.shared_filter,
    }


def target_from_plain(
    stored: Mapping[str, Any], subscriber: Subscriber, group_of: Callable[[str], Group[Subscriber] | None]
) -> Target[Subscriber]:
    """A member of a shared group, or one that has left it, as long as there is the group."""
    options = Options(stored["qos"], retain_as_published=stored["retain_as_published"])
    group = None if stored["shared"] is None else group_of(stored["shared"])
    if group is not None:
        return group.member(subscriber) or Member(subscriber, options, group)
    target = Target(subscriber, options)
    target.identifiers = tuple(stored["identifiers"])
    return target
