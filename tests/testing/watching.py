"""A room whose broker keeps what was published."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.broker.room import Room, room
from trunkline.testing.history import HISTORY


@asynccontextmanager
async def watched(history: int = HISTORY, **settings: Any) -> AsyncIterator[Room]:
    async with room(history=history, **settings) as here:
        yield here
