"""Topics and subjects, each of which has at most one counterpart: what is mapped there and back is what it was.

A topic becomes a subject as NATS's own MQTT does it: levels become tokens, an empty level the token `/`, and a dot in a
level `//`. What a line of NATS cannot hold, white space and control characters, becomes a slash and two digits: a space
is `/20`. Not every subject has a topic: a slash that stands for none of these, or one of MQTT's wildcards, has no
counterpart. NATS's own MQTT drops such a slash, so that `foo`, `foo/` and `/foo` are one topic there; here such a
subject is refused, because nothing may arrive under a name that is not its own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.topics import SHARE_PREFIX, STREAM_PREFIX, join_shared, validate_filter, validate_name
from trunkline.nats.errors import BadSubject
from trunkline.nats.protocol.subjects import ONE, REST

#: Names that are remembered in each direction, if they have no more characters than that: a thousand of the longest
#: would take 64 MB.
_REMEMBERED: Final = 16_384
_MOST_REMEMBERED: Final = 256
#: What a level has and a token cannot.
_UNWRITABLE: Final = re.compile(r"[\x00-\x20\x7f./]")
#: In a token, what stands for something else; and a slash or a wildcard of MQTT that stands for nothing.
_ESCAPED: Final = re.compile(r"//|/[01][0-9a-f]|/20|/7f|[/+#]")
#: White space and control characters, which a line cannot have.
_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f]")
_EMPTY: Final = "/"
_ANY_BELOW: Final = "+/#"


def subject_of(topic: str) -> str:
    """The subject of a topic name. Each has one."""
    return _known_subject(topic) if len(topic) <= _MOST_REMEMBERED else _subject(topic)


def topic_of(subject: bytes, max_levels: int) -> str:
    """The topic name of a subject that is published to, as a line has it.

    Raises:
        BadSubject: there is none.
    """
    known = len(subject) <= _MOST_REMEMBERED
    return _known_topic(subject, max_levels) if known else _topic(subject, max_levels)


def topic_of_reply(reply: bytes, max_levels: int) -> str:
    """As `topic_of`. Each request has a reply subject of its own, and to remember those would only fragment memory."""
    return _topic(reply, max_levels)


def _subject(topic: str) -> str:
    if _UNWRITABLE.search(topic) is None:
        return topic
    return ".".join([_token(level) for level in topic.split("/")])


def _topic(data: bytes, max_levels: int) -> str:
    subject = read_subject(data)
    topic = _levels(subject)
    try:
        validate_name(topic, max_levels)
    except ProtocolError as error:
        raise BadSubject(str(error)) from None
    return topic


_known_subject: Final = lru_cache(_REMEMBERED)(_subject)
_known_topic: Final = lru_cache(_REMEMBERED)(_topic)


def filter_of(pattern: str, max_levels: int) -> str:
    """The topic filter that matches the topics of all subjects that a pattern matches, and no others. A last `>` stands
    for one token at least, and `#` for any number of levels, so that `foo.>` is `foo/+/#`. Topics that begin with `$`
    match no wildcard in the first place: that is MQTT's rule, and holds for patterns as well.

    Raises:
        BadSubject: there is none.
    """
    tokens = pattern.split(".")
    if REST in tokens[:-1]:
        raise BadSubject(f"{pattern!r}: > is not the last token")
    levels = ["+" if token == ONE else _ANY_BELOW if token == REST else _level(token) for token in tokens]
    filter = "#" if levels == [_ANY_BELOW] else "/".join(levels)
    if filter.startswith((SHARE_PREFIX, STREAM_PREFIX)):
        raise BadSubject(f"{pattern!r}: groups and streams of MQTT are no subjects")
    try:
        validate_filter(filter, max_levels)
    except ProtocolError as error:
        raise BadSubject(str(error)) from None
    return filter


def pattern_of(filter: str) -> list[str]:
    """The patterns that together match the subjects of all topics that a filter matches: `x/#` matches `x` as well,
    which `x.>` does not."""
    levels = filter.split("/")
    rest = levels[-1] == "#"
    if rest:
        levels.pop()
    tokens = [ONE if level == "+" else _token(level) for level in levels]
    if not rest:
        return [".".join(tokens)]
    if tokens and tokens[-1] == ONE:
        return [".".join([*tokens[:-1], REST])]
    return [".".join(tokens), ".".join([*tokens, REST])] if tokens else [REST]


def shared_filter(queue: str, filter: str) -> str:
    """The shared subscription that a queue group's members have: `$share/QUEUE/FILTER`.

    Raises:
        BadSubject: no group of MQTT can have this name.
    """
    if not queue or any(sign in queue for sign in "/+#"):
        raise BadSubject(f"{queue!r} is no name of a shared group: it has one of / + #")
    return join_shared(queue, filter)


def read_subject(data: bytes) -> str:
    """A subject as a line has it.

    Raises:
        BadSubject: it is no text, or has a character that a topic cannot have.
    """
    try:
        subject = data.decode()
    except UnicodeDecodeError:
        raise BadSubject(f"{data!r} is not UTF-8") from None
    if _FORBIDDEN.search(subject):
        raise BadSubject(f"{subject!r} has white space or control characters")
    return subject


def _token(level: str) -> str:
    if not level:
        return _EMPTY
    return _UNWRITABLE.sub(lambda found: "//" if found[0] == "." else f"/{ord(found[0]):02x}", level)


def _levels(subject: str) -> str:
    return "/".join([_level(token) for token in subject.split(".")])


def _level(token: str) -> str:
    if token == _EMPTY:
        return ""
    if not token:
        raise BadSubject("a token is empty")
    return _ESCAPED.sub(_meant, token)


def _meant(found: re.Match[str]) -> str:
    escaped = found[0]
    if escaped == "//":
        return "."
    if len(escaped) == 1:
        raise BadSubject(f"{found.string!r} has {escaped!r}, which stands for nothing that a topic could have")
    sign = chr(int(escaped[1:], 16))
    if sign == "\0":
        raise BadSubject("a topic cannot have NUL")  # [MQTT-4.7.3-2]
    return sign
