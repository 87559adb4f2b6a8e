"""The bytes of an object, in chunks: cut for a store, and read from it and checked."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable
from hashlib import sha256
from typing import TYPE_CHECKING, Self, TypeAlias

import trio

from trunkline.nats.errors import ClientClosed, ObjectDamaged
from trunkline.nats.jetstream.object_infos import is_digest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from trunkline.nats.client.jetstream.watching import Watch
    from trunkline.nats.jetstream.object_infos import ObjectInfo

#: What can be put into a store: bytes, pieces of any size, or a file.
Source: TypeAlias = bytes | AsyncIterable[bytes] | os.PathLike[str]


def refuse_text(source: object) -> None:
    """
    Raises:
        TypeError: it may be meant as a path, or as what has to be encoded.
    """
    if isinstance(source, str):
        raise TypeError("an object is made of bytes, not text: encode it, or give the path of a file as a pathlib.Path")


async def cut(source: Source, size: int) -> AsyncGenerator[bytes]:
    """Chunks of `size` bytes; the last one may be smaller, and none is empty.

    Raises:
        TypeError: the source is none.
    """
    refuse_text(source)
    if isinstance(source, os.PathLike):
        async with await trio.open_file(source, "rb") as file:
            while chunk := await file.read(size):
                yield chunk
    elif isinstance(source, bytes | bytearray | memoryview):
        for start in range(0, len(source), size):
            yield bytes(source[start : start + size])
    else:
        left = bytearray()
        async for piece in source:
            left += piece
            whole = len(left) - len(left) % size
            for start in range(0, whole, size):
                yield bytes(left[start : start + size])
            del left[:whole]
        if left:
            yield bytes(left)


class ObjectReader:
    """The chunks of an object: `async for chunk in reader`. The last one is handed out when all of them are found to be
    what was put into the store.

    Raises:
        ObjectDamaged: they are not.
        ClientClosed: the client is closed, or the block has ended, before that.
    """

    def __init__(self, info: ObjectInfo, watch: Watch[bytes] | None) -> None:
        """None: there are no chunks."""
        self.info = info
        self._watch = watch
        self._chunks = 0
        self._size = 0
        self._digest = sha256()
        self._is_done = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._is_done:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        try:
            chunk = None if self._watch is None else await self._watch.receive_initial()
        except trio.EndOfChannel:
            raise ClientClosed(
                f"the client or the reader is closed, and {self.info.name!r} is not read to its end"
            ) from None
        if chunk is not None:
            self._chunks += 1
            self._size += len(chunk)
            self._digest.update(chunk)
            if self._chunks < self.info.chunks and self._size <= self.info.size:
                return chunk
        self._check()
        self._is_done = True
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def _check(self) -> None:
        info = self.info
        if self._chunks != info.chunks or self._size != info.size:
            raise ObjectDamaged(
                f"{info.bucket} has {self._size} of {info.size} bytes of {info.name!r}, in {self._chunks} of "
                f"{info.chunks} chunks: perhaps it was replaced or deleted meanwhile"
            )
        if info.digest and not is_digest(info.digest, self._digest.digest()):
            raise ObjectDamaged(f"{info.bucket}: the digest of {info.name!r} is not {info.digest}")
