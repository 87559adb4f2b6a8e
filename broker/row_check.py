"""Whether the rows of a store are as a broker writes them: that they are what was written is all that their checksums
say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker import stream_rows
from trunkline.broker.alive_note import NODE
from trunkline.broker.backlogs.rows import ENTRIES, FILTERS, QUEUES, entry_from_row, filter_from_row
from trunkline.broker.former_queues import former_place
from trunkline.broker.session.durable import POSITIONS, SESSIONS, SUBSCRIPTIONS
from trunkline.broker.session.stored_queue import head_from_row
from trunkline.broker.session.stored_will import WILLS, will_from_row
from trunkline.broker.session.stored_window import WINDOWS
from trunkline.broker.shards.bursts import decode_burst
from trunkline.broker.shards.outbox import OUTBOX, SPREADING, parts_of_key
from trunkline.broker.shards.places import LINKS, reached_from_bytes
from trunkline.broker.stored_publications import MESSAGES, REFERENCES
from trunkline.broker.stored_retained import RETAINED
from trunkline.hooks.client import client_from_plain
from trunkline.mqtt.message_row import message_from_row
from trunkline.mqtt.packing import unpack
from trunkline.mqtt.stored_codec import publication_from_bytes
from trunkline.plugins.store import PLUGINS
from trunkline.router import Options
from trunkline.store.engine import NUMBER_SIZE, Defect, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trunkline.store import Engine, Space

#: What takes a row in, as far as that can be done without others.
_DECODERS: Final[dict[Space, Callable[[bytes, bytes], object]]] = {
    SESSIONS: lambda _, row: client_from_plain(unpack(row)["client"]),
    SUBSCRIPTIONS: lambda key, row: (key[8:].decode(), Options(**unpack(row)[0])),
    WINDOWS: lambda key, row: head_from_row(row) if len(key) == NUMBER_SIZE else unpack(row),
    QUEUES: lambda _, row: former_place(row)[2],
    POSITIONS: lambda _, row: unpack(row),
    WILLS: lambda _, row: will_from_row(row),
    FILTERS: filter_from_row,
    ENTRIES: entry_from_row,
    MESSAGES: lambda _, row: publication_from_bytes(row, 0.0),
    REFERENCES: lambda _, row: int(unpack(row)),
    RETAINED: lambda _, row: message_from_row(unpack(row)[2], 0.0),
    PLUGINS: lambda key, row: (key.decode(), unpack(row)),
    LINKS: lambda _, row: reached_from_bytes(row),
    OUTBOX: lambda key, row: (parts_of_key(key), decode_burst(row, 0.0)),
    SPREADING: lambda key, row: (key.decode(), int(unpack(row))),
    NODE: lambda _, row: unpack(row),
    **stream_rows.DECODERS,
}


def malformed(engine: Engine) -> Iterator[Defect]:
    """Those that a broker cannot start with, or cannot read later. It takes long: call it in a thread."""
    for space, decode in _DECODERS.items():
        for key, row in rows(engine, space):
            try:
                decode(key, row)
            except (LookupError, TypeError, ValueError) as error:
                yield Defect(space, key, f"the row is not as a broker writes it ({error!r})")
