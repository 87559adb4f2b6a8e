"""Buckets that nats-py makes are used here, and the other way round."""

import json
import subprocess
import sys
from functools import partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.nats.client.stores import jetstream
from tests.nats.servers import NatsServer
from trunkline.nats.client.jetstream import KeyValues, ObjectStores
from trunkline.nats.errors import KeyMissing, ObjectMissing
from trunkline.nats.jetstream.buckets import KeyValueConfig, ObjectStoreConfig
from trunkline.nats.jetstream.entries import Operation

FILM = bytes(range(256)) * 100


async def nats_py(server: NatsServer, what: str, folder: Path) -> Any:
    """In a folder from which its `nats` is imported, and not the one here."""
    try:
        version("nats-py")
    except PackageNotFoundError:
        pytest.skip("nats-py is not installed")
    command = [sys.executable, str(Path(__file__).with_name("nats_py.py")), server.url, what]
    run = partial(subprocess.run, command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    done = await trio.to_thread.run_sync(run)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if done.stdout else None


async def test_what_nats_py_has_put_is_read_here(server: NatsServer, tmp_path: Path) -> None:
    async with jetstream(server) as js:
        await nats_py(server, "fill", tmp_path)
        bucket = await KeyValues(js).open("theirs")
        assert (await bucket.status()).config.history == 5
        assert (await bucket.get("a")).value == b"2"
        assert await bucket.keys() == ["a", "b.c"]
        assert [(entry.value, entry.operation) for entry in await bucket.history("gone")] == [
            (b"4", Operation.PUT),
            (b"", Operation.DELETE),
        ]
        for key in ("gone", "purged"):
            with pytest.raises(KeyMissing):
                await bucket.get(key)
        assert await bucket.create("gone", b"again") == 8
        assert await bucket.purge_deletes() == 1
        with pytest.raises(KeyMissing):
            await bucket.history("purged")

        store = await ObjectStores(js).open("theirs")
        assert sorted([info.name for info in await store.list()]) == ["a/b ä", "empty", "film"]
        assert await store.get("film") == FILM
        info = await store.info("film")
        assert (info.description, info.headers.all("A"), info.chunks) == ("a film", ["b"], 26)
        assert await store.get("a/b ä") == b"second"
        assert await store.get("empty") == b""
        with pytest.raises(ObjectMissing):
            await store.get("gone")
        await store.put("film", b"ours")
        await store.delete("empty")
        await store.update("a/b ä", new_name="b")
        assert await store.get("b") == b"second"
        chunks = await js.purge_stream("OBJ_theirs", subject="$O.theirs.C.>")
        assert chunks == 2


async def test_what_is_put_here_is_read_by_nats_py(server: NatsServer, tmp_path: Path) -> None:
    async with jetstream(server) as js:
        bucket = await KeyValues(js).create(KeyValueConfig(bucket="ours", history=3))
        for value in (b"0", b"1", b"2"):
            await bucket.put("a", value)
        await bucket.delete("a")
        await bucket.create("a", b"3")
        await bucket.put("b.c", b"4")
        await bucket.put("gone", b"5")
        await bucket.purge("gone")
        store = await ObjectStores(js).create(ObjectStoreConfig(bucket="ours"))
        film = await store.put("film", FILM, description="a film", headers={"A": "b"}, chunk_size=1000)
        await store.put("a/b", b"x", metadata={"c": "d"})
        await store.put("empty", b"")
        await store.put("gone", b"x")
        await store.delete("gone")
        await store.add_link("link", film)
        found = await nats_py(server, "show", tmp_path)
        assert found == {
            "keys": ["a", "b.c"],
            "get": "3",
            "history": [["2", None], ["", "DEL"], ["3", None]],
            "watch": [["a", "3", 5, None], ["b.c", "4", 6, None], ["gone", "", 8, "PURGE"]],
            "status": [3, 5],
            "objects": {
                "film": sha256(FILM).hexdigest(),
                "a/b": sha256(b"x").hexdigest(),
                "empty": sha256(b"").hexdigest(),
            },
            "film": ["a film", len(FILM), 26, {"A": ["b"]}, 1000],
        }
        assert (await bucket.get("a")).value == b"theirs"
        assert await store.get("film") == b"theirs"
        assert await store.get("link") == b"theirs"
        with pytest.raises(ObjectMissing):
            await store.get("a/b")
