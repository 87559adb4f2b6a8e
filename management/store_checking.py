"""What `trunkline store` finds in a store, as people read it."""

from __future__ import annotations

from contextlib import closing, suppress
from itertools import chain
from typing import TYPE_CHECKING, Final

import click

from trunkline.management.logs import printable
from trunkline.management.store_place import progress_of
from trunkline.mqtt.explanations import quoted
from trunkline.store import StoreCorrupt

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from trunkline.broker.mending import LostMessages
    from trunkline.management.store_place import StorePart
    from trunkline.store import Defect
    from trunkline.store.sqlite import SqliteEngine

#: Clients that are named because they have lost most.
MAX_NAMED: Final = 10


def print_defects(engine: SqliteEngine) -> int:
    """Returns how many there are."""
    found = 0
    for found, defect in enumerate(_defects(engine), 1):  # noqa: B007 - it is returned
        where = "" if defect.space is None or defect.key is None else f"{defect.space.name} {defect.key!r}: "
        click.echo(printable(f"{where}{defect.text}"))
    return found


def is_whole(part: StorePart) -> bool:
    try:
        with closing(part.open_to_read(verify=True)) as engine:
            return next(_defects(engine), None) is None
    except StoreCorrupt:
        return False


def _defects(engine: SqliteEngine) -> Iterator[Defect]:
    # imported here: it needs the broker
    from trunkline.broker.row_check import malformed

    with progress_of("Checking", "rows") as progress:
        yield from chain(engine.check(progress), _ignoring_damage(malformed(engine)))


def _ignoring_damage(defects: Iterator[Defect]) -> Iterator[Defect]:
    """Up to the first row that is damaged, which was found before."""
    with suppress(StoreCorrupt):
        yield from defects


def messages(engine: SqliteEngine) -> str:
    """How many there are. Nothing of a store that has none."""
    # imported here: they need the broker
    from trunkline.broker.mending import messages_in
    from trunkline.broker.stored_publications import MESSAGES

    count = engine.count(MESSAGES)
    return f"messages: {messages_in(engine):,} in {count:,} rows, each as it was published" if count else ""


def lost_messages(lost: LostMessages) -> Iterator[str]:
    if lost.by_client:
        yield f"lost: {lost.by_client.total():,} messages that waited, of {_most(lost.by_client)}"
    if lost.of_filters:
        yield f"lost: {lost.of_filters:,} messages that waited for filters that are lost"
    if lost.by_stream:
        yield f"lost: {lost.by_stream.total():,} messages in streams, of {_most(lost.by_stream)}"


def _most(losers: Counter[str]) -> str:
    named = [f"{quoted(name)} {count:,}" for name, count in losers.most_common(MAX_NAMED)]
    return ", ".join(named) + (f" and {len(losers) - len(named):,} others" if len(losers) > len(named) else "")
