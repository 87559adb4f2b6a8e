"""A plugin that counts the visits of each client, over restarts of the broker.

Run it with `python examples/plugin_store.py`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import trio

import trunkline.testing
from trunkline.client import Client, ConnectionSettings
from trunkline.hooks import ClientInfo
from trunkline.plugins import Context, Settings, hook


class Visits:
    def __init__(self, context: Context[Settings]) -> None:
        self.context = context

    @hook("client.connected")
    def count(self, client: ClientInfo) -> None:
        store = self.context.store
        store.put(client.client_id, store.get(client.client_id, 0) + 1)
        self.context.nursery.start_soon(self.tell, client.client_id)

    async def tell(self, client_id: str) -> None:
        """Nobody is told a number that the next broker would not know."""
        await self.context.store.committed()
        self.context.publish(f"visits/{client_id}", str(self.context.store.get(client_id)))


async def main() -> None:
    with TemporaryDirectory() as folder:
        store = {"durability": "os", "path": str(Path(folder) / "broker.db")}
        for _ in range(2):
            async with trunkline.testing.broker(store=store) as broker:
                await broker.plugins.enable("visits", factory=Visits)
                async with Client(ConnectionSettings(client_id="ann"), open_stream=broker.connect):
                    visits = await broker.wait_for("visits/ann")
                print("visits of ann:", visits.payload.decode())


if __name__ == "__main__":
    trio.run(main)
