"""The hooks that are watched, and the columns that are recorded for each.

Callbacks only watch. Where others change a value they run last, so that they get the final value, and elsewhere first,
so that they run even if others end the chain.
"""

from __future__ import annotations

from fnmatch import translate
from re import compile as compile_pattern
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from trunkline.events.schema import Flag
from trunkline.hooks.priorities import RECORD, RECORD_RESULT
from trunkline.mqtt.packets import Connack
from trunkline.mqtt.reasons import Reason, name_of
from trunkline.mqtt.session.window import Delivery
from trunkline.mqtt.topics import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.events.recorder import Recorder
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Point
    from trunkline.mqtt.packets import SubscriptionRequest
    from trunkline.mqtt.publication import Publication
    from trunkline.plugins.registered import PluginHooks

#: Limits of the cache of topics and client ids and whether they are recorded: their number, and their length.
_REMEMBERED: Final = 10_000
_LONGEST: Final = 256
#: What ids leave when they are divided by this prime is spread evenly, whatever the publisher's rhythm. Python divides
#: by a number of 30 bits fastest.
_PRIME: Final = 1_073_741_789
#: The column of each way in which a message may come, shared by all rows.
_GIVEN: Final[dict[Delivery | None, dict[str, Any] | None]] = {
    None: None,
    **{delivery: {"delivery": delivery} for delivery in get_args(Delivery)},
}


class Wanted:
    """Selects what is recorded: topics and clients by patterns, and one in N messages with all of its events."""

    def __init__(self, topics: Sequence[str], clients: Sequence[str], one_in: int, *, texts: bool = True) -> None:
        """`topics` are topic filters; `clients` patterns of client ids with `*` and `?`. Without `texts`, free text is
        left out: reasons are words from a list."""
        self.texts: Final = texts
        self._filters = tuple(topics)
        self._clients = None if "*" in clients else compile_pattern("|".join(map(translate, clients)) or "(?!)")
        self.one_in: Final = one_in
        #: For the hot path: cached results of `topic`.
        self.known_topics: dict[str, bool] = {}
        self._known_clients: dict[str, bool] = {}

    @property
    def narrowed_by(self) -> list[str]:
        """The settings that leave events out."""
        narrowing = {"topics": "#" not in self._filters, "clients": self._clients is not None}
        return [name for name, narrows in narrowing.items() if narrows]

    @property
    def all_clients(self) -> bool:
        return self._clients is None

    def client(self, client_id: str) -> bool:
        if self._clients is None:
            return True
        known = self._known_clients.get(client_id)
        if known is None:
            known = self._clients.match(client_id) is not None
            _remember(self._known_clients, client_id, known)
        return known

    def topic(self, topic: str) -> bool:
        known = self.known_topics.get(topic)
        if known is None:
            known = any(matches(filter, topic) for filter in self._filters)
            _remember(self.known_topics, topic, known)
        return known

    def publications(self, publication: Publication) -> Sequence[Publication]:
        """The selected part of a publication: all of it at once, if only its topics matter."""
        topics = list(map(self.topic, publication.topics))
        if not any(topics):
            return ()
        if self.one_in == 1:
            if all(topics):
                return (publication,)
            return [message for message in publication.messages if self.topic(message.topic)]
        sampled = [number for number, guid in enumerate(publication.guids) if self.samples(guid)]
        messages = publication.messages if sampled else ()
        return [messages[number] for number in sampled if self.topic(messages[number].topic)]

    def samples(self, guid: int) -> bool:
        """The same answer for all events of a message."""
        return not guid % _PRIME % self.one_in


def _remember(known: dict[str, bool], name: str, wanted: bool) -> None:
    """Clients with many long names must not fill the memory."""
    if len(name) <= _LONGEST:
        if len(known) >= _REMEMBERED:
            known.clear()
        known[name] = wanted


class Watching:
    """The callbacks of a recorder."""

    def __init__(self, recorder: Recorder, wanted: Wanted) -> None:
        self._recorder = recorder
        self._wanted = wanted

    def watch(self, hooks: PluginHooks, points: Sequence[Point]) -> None:
        """Register a callback at each of these points; a point's place is the number of its kind."""
        for kind, point in enumerate(points):
            priority = RECORD_RESULT if point.kind == "transform" else RECORD
            if point.arguments[: point.required] == ("client", "message"):
                callback = self._messages(kind, at_origin=point.name == "message.publish")
            elif point.name == "message.routed":
                callback = self._routed(kind)
            else:
                callback = self._others(kind, point)
            hooks.add(point, callback, priority=priority, publications=point.publication is not None)

    def _messages(self, kind: int, *, at_origin: bool) -> Callable[..., None]:
        """The points that see each message. `at_origin`: each is recorded with its own time
        stamp."""
        record, wanted = self._recorder.record, self._wanted
        topics, all_clients, one_in = wanted.known_topics, wanted.all_clients, wanted.one_in

        def look(client: ClientInfo, publication: Publication, delivery: Delivery | None = None) -> None:
            # usually one dict lookup decides, and one division
            if publication.count == 1:
                known = topics.get(publication.topic)
                if known is False or (one_in > 1 and publication.guid % _PRIME % one_in):
                    return
                if known and all_clients:
                    given = _GIVEN[delivery]
                    record(kind, client, publication, given, publication.timestamp if at_origin else None)
                    return
            for part in wanted.publications(publication):
                if wanted.client(client.client_id):
                    record(kind, client, part, _GIVEN[delivery], part.timestamp if at_origin else None)

        return look

    def _routed(self, kind: int) -> Callable[..., None]:
        record, wanted = self._recorder.record, self._wanted
        topics, all_clients, one_in = wanted.known_topics, wanted.all_clients, wanted.one_in

        def look(publication: Publication, receivers: tuple[str, ...]) -> None:
            if publication.count == 1:  # as above
                known = topics.get(publication.topic)
                if known is False or (one_in > 1 and publication.guid % _PRIME % one_in):
                    return
                if known and all_clients:
                    given = {"receivers": len(receivers), "client_id": publication.publisher}
                    record(kind, None, publication, given)
                    return
            for part in wanted.publications(publication):
                if wanted.client(part.publisher):
                    record(kind, None, part, {"receivers": len(receivers), "client_id": part.publisher})

        return look

    def _others(self, kind: int, point: Point) -> Callable[..., None]:
        """Points that not every message passes."""
        record, wanted, names = self._recorder.record, self._wanted, point.arguments

        def look(*values: Any) -> None:
            arguments = dict(zip(names, values, strict=True))
            client: ClientInfo | None = arguments.pop("client", None)
            publication: Publication | None = arguments.pop("message", None)
            if client is not None and not wanted.client(client.client_id):
                return
            parts: Sequence[Publication | None] = (None,) if publication is None else wanted.publications(publication)
            if not parts:
                return
            topic = arguments.get("topic")
            if topic is not None and arguments.get("action") != "subscribe" and not wanted.topic(topic):
                return
            given: dict[str, Any] = {}
            flags = 0
            for name, value in arguments.items():
                flags |= _give(name, value, given, wanted.texts)
            if point.name.startswith("client.") and client is not None:
                given["keep_alive"] = client.keep_alive
                flags |= Flag.CLEAN_START * client.clean_start | Flag.SUPERUSER * client.superuser
            if point.name == "client.disconnected" and client is not None:
                given["latency_us"] = max(0, int((self._recorder.clock() - client.connected_at) * 1e6))
            if flags:
                given["flags"] = int(flags)
            for part in parts:
                record(kind, client, part, given or None)

        return look


def _give(name: str, value: Any, given: dict[str, Any], texts: bool) -> int:
    """Add the columns of one argument of a hook; returns the flags that it sets. Passwords and properties have no
    columns."""
    if name == "reason":
        if isinstance(value, Reason):
            given["reason_code"] = int(value)
            given.setdefault("reason", name_of(value))
        else:
            given["reason"] = value
    elif name == "text":
        if value and texts:
            given["reason"] = value
    elif name == "packet":
        if isinstance(value, Connack):
            given["reason_code"] = int(value.reason)
            given["reason"] = name_of(value.reason)
    elif name in ("action", "topic", "qos", "filter"):
        given[name] = value
    elif name == "retain":
        return Flag.RETAIN if value else 0
    elif name == "allowed":
        return Flag.ALLOWED if value else 0
    elif name == "request":
        request = cast("SubscriptionRequest", value)
        given["filter"], given["qos"] = request.filter, request.qos
        return Flag.NO_LOCAL * request.no_local | Flag.RETAIN_AS_PUBLISHED * request.retain_as_published
    elif name == "exchange":
        given["name"] = value.method
    elif name == "alarm":
        given["name"] = value.name
        if texts:
            given["reason"] = value.text
    return 0
