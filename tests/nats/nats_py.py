"""What nats-py does with buckets, in a process of its own: `python nats_py.py URL fill|show`. Prints JSON."""

import asyncio
import hashlib
import json
import sys
from typing import Any

import nats  # type: ignore[import-not-found,import-untyped,unused-ignore]
from nats.js import api  # type: ignore[import-not-found,import-untyped,unused-ignore]


async def fill(js: Any) -> None:
    """Buckets of both kinds, `theirs`."""
    bucket = await js.create_key_value(config=api.KeyValueConfig(bucket="theirs", history=5))
    await bucket.put("a", b"1")
    await bucket.update("a", b"2", last=1)
    await bucket.create("b.c", b"3")
    await bucket.put("gone", b"4")
    await bucket.delete("gone")
    await bucket.put("purged", b"5")
    await bucket.purge("purged")
    store = await js.create_object_store("theirs")
    meta = api.ObjectMeta(description="a film", headers={"A": "b"}, options=api.ObjectMetaOptions(max_chunk_size=1000))
    await store.put("film", bytes(range(256)) * 100, meta=meta)
    await store.put("a/b ä", b"first")
    await store.put("a/b ä", b"second")
    await store.put("empty", b"")
    await store.put("gone", b"x")
    await store.delete("gone")


async def show(js: Any) -> None:
    """What `ours` have."""
    bucket = await js.key_value("ours")
    watcher = await bucket.watchall()
    seen = []
    async for entry in watcher:
        if entry is None:
            break
        seen.append([entry.key, entry.value.decode(), entry.revision, entry.operation])
    await watcher.stop()
    history = [[entry.value.decode(), entry.operation] for entry in await bucket.history("a")]
    store = await js.object_store("ours")
    objects = {}
    for info in await store.list(ignore_deletes=True):
        if info.options is None or info.options.link is None:
            found = await store.get(info.name)
            objects[info.name] = hashlib.sha256(found.data).hexdigest()
    film = await store.get_info("film")
    print(
        json.dumps(
            {
                "keys": await bucket.keys(),
                "get": (await bucket.get("a")).value.decode(),
                "history": history,
                "watch": seen,
                "status": [(await bucket.status()).history, (await bucket.status()).values],
                "objects": objects,
                "film": [film.description, film.size, film.chunks, film.headers, film.options.max_chunk_size],
            }
        )
    )
    # and what one has, the other one changes
    await bucket.update("a", b"theirs", last=(await bucket.get("a")).revision)
    await store.put("film", b"theirs")
    await store.delete("a/b")


async def main(url: str, what: str) -> None:
    client = await nats.connect(url)
    await {"fill": fill, "show": show}[what](client.jetstream())
    await client.close()


asyncio.run(main(*sys.argv[1:]))
