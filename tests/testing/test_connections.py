"""What a test sees of the connections that its broker has had."""

from tests.conformance import raw
from tests.wire import Wire
from trunkline import testing


async def test_what_became_of_connections() -> None:
    async with testing.broker() as b:
        for client_id in ("leaves", "vanishes", "stays"):
            wire = Wire(b.connect())
            await wire.connect(client_id)
            if client_id == "leaves":
                await wire.disconnect()
            if client_id == "vanishes":
                await wire.abort()
        with b.faults.refuse_connect("SERVER_BUSY"):
            refused = Wire(b.connect())
            await refused.send(raw.connect("refused"))
            await b.wait_until(lambda: len([row for row in b.connections if not row.open]) == 3)
        again = Wire(b.connect())
        await again.connect("stays")
        await b.wait_until(lambda: not b.connections[2].open)
        rows = [str(row).partition(":")[0] + str(row).partition(":")[2] for row in b.connections]
        begins = [
            "leaves gone (normal_disconnection",
            "vanishes gone (unspecified_error",
            "stays gone (session_taken_over",
        ]
        assert all(row.startswith(begin) for row, begin in zip(rows, begins, strict=False))
        assert rows[3:] == ["refused refused (server_busy)", "stays connected"]
        await again.abort()
        await wire.abort()
        await refused.abort()
