"""What accompanies a connection's descriptor from one process to another: frames on a stream, each with its length."""

from __future__ import annotations

from dataclasses import asdict
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trunkline.broker.net.passed import MAX_FIRST
from trunkline.hooks.identity import Certificate, Identity
from trunkline.mqtt.packing import pack, unpack

if TYPE_CHECKING:
    from trunkline.broker.net.passed import PassedConnection

_LENGTH: Final = Struct("!I")
#: Bytes of a frame: what was read, and as much again for a certificate with many names.
MAX_FRAME: Final = 2 * MAX_FIRST


class About(NamedTuple):
    """What is in a frame."""

    listener: str
    peer: tuple[str, int] | None
    identity: Identity | None
    first: bytes
    relayed: bool


class BadPassage(Exception):
    """No shard of this node has sent it."""


def frame_of(passed: PassedConnection) -> bytes:
    """May be longer than `MAX_FRAME`, and is not accepted then."""
    identity = None if passed.identity is None else asdict(passed.identity)
    about = pack((passed.listener, passed.peer, identity, passed.first, passed.relayed))
    return _LENGTH.pack(len(about)) + about


def cut(buffer: bytearray) -> About | None:
    """Take a frame from the beginning; None as long as it is not there.

    Raises:
        BadPassage
    """
    if len(buffer) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
    if end > MAX_FRAME:
        raise BadPassage(f"a frame of {end} bytes")
    if len(buffer) < end:
        return None
    frame = bytes(buffer[_LENGTH.size : end])
    del buffer[:end]
    try:
        listener, peer, identity, first, relayed = unpack(frame)
        return About(listener, None if peer is None else (peer[0], peer[1]), _identity(identity), first, relayed)
    except (ValueError, TypeError, LookupError) as error:
        raise BadPassage(str(error)) from None


def _identity(plain: dict[str, Any] | None) -> Identity | None:
    if plain is None:
        return None
    fields: dict[str, Any] = {**plain}
    if plain["certificate"] is not None:
        certificate: dict[str, Any] = {**plain["certificate"]}
        certificate["names"] = tuple((kind, value) for kind, value in certificate["names"])
        certificate["common_names"] = tuple(certificate["common_names"])
        fields["certificate"] = Certificate(**certificate)
    return Identity(**fields)
