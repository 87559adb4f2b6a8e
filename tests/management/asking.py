"""Operations asked of a broker in the same process, and through its control socket."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from tests.broker.room import Room, room
from trunkline.management.control_client import ControlClient
from trunkline.management.operations import find
from trunkline.management.operations.registry import OperationError, Page

T = TypeVar("T")


async def ask(here: Room, operation: str, /, **arguments: Any) -> Any:
    return await find(operation).run(here.admin, arguments)


async def refused(here: Room, kind: type[OperationError], operation: str, /, **arguments: Any) -> str:
    """What it says instead of doing it."""
    with pytest.raises(kind) as caught:
        await ask(here, operation, **arguments)
    return str(caught.value)


async def all_rows(here: Room, operation: str, /, **arguments: Any) -> list[Any]:
    """Every row, page by page."""
    rows: list[Any] = []
    while True:
        page = await ask(here, operation, **arguments)
        assert isinstance(page, Page)
        rows += page.rows
        if page.next is None:
            return rows
        arguments["after"] = page.next


@asynccontextmanager
async def controlled(folder: Path, **control: Any) -> AsyncIterator[Room]:
    """A broker with a control socket in this folder."""
    async with room(control={"path": str(folder / "broker.sock"), **control}) as here:
        yield here


async def through_socket(folder: Path, use: Callable[[ControlClient], T]) -> T:
    """Use a client of the broker in this folder, in a thread."""

    def run() -> T:
        with ControlClient(folder / "broker.sock") as client:
            return use(client)

    return await trio.to_thread.run_sync(run)
