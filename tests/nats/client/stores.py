"""Buckets of real servers, for the length of a test."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.nats.servers import NatsServer
from trunkline.nats import connect
from trunkline.nats.client.jetstream import JetStream, KeyValue, KeyValues, ObjectStore, ObjectStores
from trunkline.nats.jetstream.buckets import KeyValueConfig, ObjectStoreConfig
from trunkline.nats.jetstream.configs import Storage

#: Newer servers find the files of a stream that was deleted when one of this name is created at once.
IN_MEMORY: Final[dict[str, Any]] = {"storage": Storage.MEMORY}


@asynccontextmanager
async def jetstream(server: NatsServer, **settings: Any) -> AsyncGenerator[JetStream]:
    """All of its streams are gone behind it."""
    async with connect(server.url, **settings) as client:
        js = client.jetstream()
        try:
            yield js
        finally:
            for info in await js.streams():
                await js.delete_stream(info.config.name)


@asynccontextmanager
async def key_values(server: NatsServer, **config: Any) -> AsyncGenerator[tuple[JetStream, KeyValue]]:
    async with jetstream(server) as js:
        yield js, await KeyValues(js).create(KeyValueConfig(bucket="settings", **IN_MEMORY, **config))


@asynccontextmanager
async def objects(server: NatsServer) -> AsyncGenerator[tuple[JetStream, ObjectStore]]:
    async with jetstream(server) as js:
        yield js, await ObjectStores(js).create(ObjectStoreConfig(bucket="films", **IN_MEMORY))


def knows_ttl(js: JetStream) -> bool:
    """Whether a message can have a TTL of its own."""
    return _version(js) >= (2, 11)


def knows_filters(js: JetStream) -> bool:
    """Whether a consumer can have several filters."""
    return _version(js) >= (2, 10)


def _version(js: JetStream) -> tuple[int, ...]:
    return tuple(map(int, js.client.server["version"].split(".")[:2]))
