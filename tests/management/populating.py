"""Thousands of rows for listings."""

from tests.broker.room import Room
from tests.conformance import raw


async def populate(here: Room, count: int) -> None:
    """So many clients that are away, each with a subscription."""
    for number in range(count):
        async with here.broker.connect() as stream:
            await stream.send_all(
                raw.connect(f"c{number:05}", clean=False, properties=raw.session_expiry(0xFFFFFFFE))
                + raw.subscribe(1, (f"own/{number:05}", 0))
                + raw.disconnect()
            )
            while await stream.receive_some():  # CONNACK, SUBACK, and the close
                pass
