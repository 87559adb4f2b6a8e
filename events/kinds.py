"""Which columns each kind of event fills in, and the tables that kinds make: who reads few columns reads faster."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from trunkline.events.columns import Column
from trunkline.events.schema import COLUMNS, OWN_KINDS
from trunkline.hooks.points import POINTS, Point

#: The columns that each row has.
ALWAYS: Final = ("node", "incarnation", "seq", "time", "kind", "weight")

#: What the arguments of a hook fill in.
_OF_ARGUMENTS: Final = {
    "client": ("client_id", "username", "peer", "peer_port", "listener", "protocol"),
    "message": (
        *("topic", "qos", "flags", "size", "guid", "packet_id", "publisher", "latency_us"),
        *("payload", "user_properties"),
    ),
    "receivers": ("receivers", "client_id"),
    "reason": ("reason",),
    "text": ("reason_code", "reason"),  # the reason beside it is a code
    "retain": ("flags",),
    "allowed": ("flags",),
    "request": ("filter", "qos", "flags"),
    "exchange": ("name",),
    "alarm": ("name", "reason"),
    "packet": (),
    "password": (),
    "properties": (),
}
_MORE: Final = {"client.connack": ("reason_code", "reason"), "client.disconnected": ("latency_us",)}


def _filled_at(point: Point) -> set[str]:
    names = {name for argument in point.arguments for name in _OF_ARGUMENTS.get(argument, (argument,))}
    if point.name.startswith("client."):
        names |= {"keep_alive", "flags"}
    return names.union(_MORE.get(point.name, ()))


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    wanted = set(names)
    return tuple(column.name for column in COLUMNS if column.name in wanted)


#: The columns that an event of each kind may fill in, beside those that each row has.
FILLED: Final = {
    **{point.name: _in_order(_filled_at(point)) for point in POINTS},
    **{kind.name: _in_order(kind.columns) for kind in OWN_KINDS},
}


class EventTable(NamedTuple):
    """Kinds that are about the same, and so have columns in common."""

    name: str
    meaning: str
    #: With a `*` for all that begin so.
    patterns: tuple[str, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        return matching_kinds(self.patterns)


#: The table of kinds that are about the record itself.
RECORD: Final = "record"
_TABLES: Final = (
    EventTable(
        "messages",
        "What became of each message: published, routed, delivered, acknowledged, dropped.",
        ("message.*", "delivery.completed"),
    ),
    EventTable(
        "connections",
        "Logins, and connections that began and ended.",
        ("client.connect", "client.authenticate*", "client.enhanced_*", "client.conn*", "client.disconnected"),
    ),
    EventTable(
        "sessions",
        "Sessions and their subscriptions.",
        (
            *("session.created", "session.resumed", "session.discarded", "session.taken_over", "session.terminated"),
            *("session.subscri*", "session.unsubscribed"),
            *("client.subscribe", "client.unsubscribe", "client.read_filter"),
        ),
    ),
    EventTable("accesses", "Decisions about what a client may do.", ("client.check_acl", "client.acl_decided")),
    EventTable("figures", "Metrics, limits and queues.", ("node.stats", "node.limit", "session.stats")),
    EventTable("alarms", "Alarms that began, ended, or are on.", ("alarm.*",)),
    EventTable(
        RECORD,
        "The record itself: that the node is there, what was lost, and its clock.",
        ("node.tick", "node.version", "node.clock", "exporter.*", "log.*"),
    ),
)


#: By their names. Each kind is in one of them.
TABLES: Final = {table.name: table for table in _TABLES}


def matching_kinds(patterns: Iterable[str]) -> tuple[str, ...]:
    """The kinds with these names; a `*` at the end stands for all that begin so."""
    wanted = tuple(patterns)
    begins = tuple(name[:-1] for name in wanted if name.endswith("*"))
    return tuple(kind for kind in FILLED if kind in wanted or (begins and kind.startswith(begins)))


def columns_of(patterns: Iterable[str]) -> tuple[Column, ...]:
    """Those that events of these kinds fill in, with those that each row has."""
    names = set(ALWAYS).union(*(FILLED[kind] for kind in matching_kinds(patterns)))
    return tuple(column for column in COLUMNS if column.name in names)
