"""Subjects: tokens with dots between, `*` for one token and a last `>` for one or more in those that are subscribed to.

A subject stands in a control line among spaces. What the grammar does not allow there is refused before it is written:
a server may not notice, and other clients would read the rest of it as something else.
"""

from __future__ import annotations

import re
from typing import Final

from trunkline.nats.errors import BadSubject

#: A server reads lines of 4,096 bytes, by default, in which two subjects may stand.
MAX_LENGTH: Final = 2000

ONE: Final = "*"
REST: Final = ">"

#: White space ends a subject, control characters end up in the terminals of others, and half a character is no text.
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f\ud800-\udfff]")


def check_subject(subject: str) -> None:
    """A subject to publish to, without wildcards.

    Raises:
        BadSubject: it is none.
    """
    _check(subject)
    for token in subject.split("."):
        if token in (ONE, REST):
            raise BadSubject(
                f"{subject!r}: the wildcard {token} stands for subjects, and nothing can be published to it"
            )


def check_pattern(pattern: str) -> None:
    """A subject to subscribe to, which may have wildcards.

    Raises:
        BadSubject: it is none.
    """
    _check(pattern)
    if REST in pattern.split(".")[:-1]:
        raise BadSubject(f"{pattern!r}: > is not the last token")


def check_name(name: str, kind: str) -> None:
    """The name of a stream, a consumer or the like: one token, and no wildcard.

    Raises:
        BadSubject: it is none.
    """
    if not name:
        raise BadSubject(f"the name of a {kind} is empty")
    if _FORBIDDEN.search(name) or any(sign in name for sign in ".*>/\\"):
        raise BadSubject(f"{name!r}: the name of a {kind} has no white space, and none of . * > / \\")


def check_queue(queue: str) -> None:
    """The name of a queue group, which may have dots.

    Raises:
        BadSubject: it is none.
    """
    if not queue or _FORBIDDEN.search(queue):
        raise BadSubject(f"{queue!r}: the name of a queue group is not empty, and has no white space")


def _check(subject: str) -> None:
    if not subject:
        raise BadSubject("the subject is empty")
    if len(subject) > MAX_LENGTH:
        raise BadSubject(f"a subject of {len(subject)} characters, {MAX_LENGTH} have room in the line of a server")
    if found := _FORBIDDEN.search(subject):
        raise BadSubject(f"{subject!r} has {found[0]!r} at {found.start()}")
    if subject[0] == "." or subject[-1] == "." or ".." in subject:
        raise BadSubject(f"{subject!r} has an empty token")


def has_wildcard(pattern: str) -> bool:
    return (ONE in pattern or REST in pattern) and any(token in (ONE, REST) for token in pattern.split("."))


def matches(pattern: str, subject: str) -> bool:
    """Whether a valid pattern matches a valid subject."""
    if pattern == subject:
        return True
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == REST:
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
    elif len(wanted) != len(tokens):
        return False
    return all(want in (ONE, token) for want, token in zip(wanted, tokens, strict=False))


def covers(wide: str, narrow: str) -> bool:
    """Whether a valid pattern matches each subject that another one matches."""
    wanted, tokens = wide.split("."), narrow.split(".")
    if wanted[-1] == REST:
        wanted.pop()
        if len(tokens) <= len(wanted):
            return False
    elif len(wanted) != len(tokens) or tokens[-1] == REST:
        return False
    return all(want in (ONE, token) and token != REST for want, token in zip(wanted, tokens, strict=False))
