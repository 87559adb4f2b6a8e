"""Brokers that record, and what they have recorded."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.broker.room import Room, room
from trunkline.events.reader import EventLog

Row = dict[str, Any]


@asynccontextmanager
async def recording(path: Path, settings: dict[str, Any] | None = None, **others: Any) -> AsyncIterator[Room]:
    async with room(plugins={"events": {"path": str(path), **(settings or {})}}, **others) as here:
        yield here


def recorded(path: Path, *kinds: str) -> list[Row]:
    """What all incarnations have, without what is null."""
    log = EventLog(path)
    log.refresh()
    rows = [
        {name: value for name, value in row.items() if value is not None}
        for node, extent in log.nodes().items()
        for batch in log.read(node, extent.first, extent.end)
        for row in batch.to_pylist()
    ]
    return [row for row in rows if not kinds or row["kind"] in kinds]


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def figure(here: Room, name: str) -> int:
    return dict(here.admin.plugins.figures())[f"plugins.events.{name}"]
