"""Where the page names each client."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from trunkline.analytics.report import wording
from trunkline.analytics.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.analytics.report.sections.section import Section


class Named(NamedTuple):
    """A client, by the id of its row, and the tables that name it."""

    id: str
    text: str
    tables: Sequence[Table]


def named(sections: Sequence[Section]) -> dict[str, Named]:
    """By client id, sorted. Only rows that are on the page count, so there are few."""
    found: dict[str, dict[str, Table]] = {}
    for part in (part for section in sections for part in section.parts if isinstance(part, Table)):
        for client_id in (cell.client_id for row in part.rows for cell in row if cell.client_id):
            found.setdefault(client_id, {})[part.id] = part
    # an id in HTML has no spaces, and a name may have anything
    return {
        client_id: Named(f"client-{number}", wording.name(client_id), [*found[client_id].values()])
        for number, client_id in enumerate(sorted(found), 1)
    }
