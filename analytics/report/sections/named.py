"""The clients that the page names: what each of them did, and what the tables say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trunkline.analytics.report import wording
from trunkline.analytics.report.sections.clients import HOW
from trunkline.analytics.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trunkline.analytics.report.results import ClientSums, MessageSums, Results, Stay
    from trunkline.analytics.report.sections.section import Section


class Told(NamedTuple):
    """What a table says of a client: its rows, without the name."""

    table: Table
    rows: Sequence[str]


class Named(NamedTuple):
    """A client, by the id of its entry on the page."""

    id: str
    text: str
    #: What it did, in words.
    done: Sequence[str]
    told: Sequence[Told]


def names(sections: Sequence[Section]) -> list[str]:
    """Of the clients in rows that are on the page, so there are few; sorted."""
    return sorted({cell.client_id for table in _tables(sections) for row in table.rows for cell in row} - {""})


def named(sections: Sequence[Section], results: Results) -> dict[str, Named]:
    """By client id, sorted."""
    rows: dict[str, dict[str, list[str]]] = {name: {} for name in names(sections)}
    tables = {table.id: table for table in _tables(sections)}
    for table in tables.values():
        for row in table.rows:
            for client_id in dict.fromkeys(cell.client_id for cell in row if cell.client_id):
                pairs = zip(table.headings, row, strict=True)
                text = "; ".join(f"{heading}: {cell.text}" for heading, cell in pairs if cell.client_id != client_id)
                rows[client_id].setdefault(table.id, []).append(text)
    # an id in HTML has no spaces, and a name may have anything
    return {
        client_id: Named(
            f"client-{number}",
            wording.name(client_id),
            [*_done(results.named[client_id])] if client_id in results.named else [],
            [Told(tables[id], texts) for id, texts in told.items()],
        )
        for number, (client_id, told) in enumerate(rows.items(), 1)
    }


def _tables(sections: Sequence[Section]) -> Iterator[Table]:
    return (part for section in sections for part in section.parts if isinstance(part, Table))


def _done(sums: ClientSums) -> Iterator[str]:
    yield "Was not connected." if sums.stay is None else _stay(sums.stay)
    if sums.published.number:
        yield f"Published {_messages(sums.published)}."
    if sums.delivered.number:
        yield f"Got {_messages(sums.delivered)}."
    if sums.dropped:
        reasons = sorted(sums.dropped.items(), key=lambda item: (-item[1], item[0]))
        told = ", ".join(f"{wording.whole(number)} ({wording.name(reason)})" for reason, number in reasons)
        yield f"Dropped, of its messages or on the way to it: {told}."
    if sums.refused:
        yield f"{wording.count(sums.refused, 'connection')} refused."


def _stay(stay: Stay) -> str:
    begin = "before recording began" if stay.began is None else f"{wording.moment(stay.began)} UTC"
    end = (
        "open at the end"
        if stay.ended is None
        else f"until {wording.moment(stay.ended)} UTC, {HOW.get(stay.how, stay.how)}"
    )
    last = f"{'the last ' if stay.connections > 1 else ''}on {wording.name(stay.node)} since {begin}, {end}"
    return f"{wording.count(stay.connections, 'connection')}, {wording.duration(stay.seconds)} in all; {last}."


def _messages(messages: MessageSums) -> str:
    told = f"{wording.count(messages.number, 'message')}, {wording.size(messages.size)}"
    if messages.last is not None:
        told += f", the last at {wording.moment(messages.last)} UTC"
    if messages.topics:
        told += f"; most by {', '.join(map(wording.name, messages.topics))}"
    return told
