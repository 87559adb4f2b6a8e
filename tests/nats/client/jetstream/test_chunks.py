import io
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trunkline.nats.client.jetstream.chunks import ObjectReader, Source, cut
from trunkline.nats.errors import ObjectDamaged
from trunkline.nats.jetstream.object_infos import ObjectInfo, digest_text

if TYPE_CHECKING:
    from trunkline.nats.client.jetstream.watching import Watch


async def each(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        await trio.lowlevel.checkpoint()
        yield piece


async def chunks(source: Source, size: int) -> list[bytes]:
    return [chunk async for chunk in cut(source, size)]


@given(st.lists(st.binary(max_size=20), max_size=10), st.integers(1, 25))
def test_however_bytes_come_they_are_cut_alike(pieces: list[bytes], size: int) -> None:
    whole = b"".join(pieces)
    found = trio.run(chunks, each(pieces), size)
    assert found == trio.run(chunks, whole, size)
    assert b"".join(found) == whole
    assert all(len(chunk) == size for chunk in found[:-1])
    assert all(found)


async def test_a_file(tmp_path: Path) -> None:
    path = trio.Path(tmp_path / "film")
    await path.write_bytes(b"abcdefg")
    assert await chunks(path, 3) == [b"abc", b"def", b"g"]
    with pytest.raises(FileNotFoundError):
        await chunks(tmp_path / "none", 3)


async def test_what_is_no_source() -> None:
    with pytest.raises(TypeError):
        await chunks(cast("Any", io.BytesIO(b"abc")), 3)


class Chunks:
    """What a watch of chunks gives."""

    def __init__(self, *found: bytes) -> None:
        self._found = list(found)

    async def receive_initial(self) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return self._found.pop(0) if self._found else None


def reader(*found: bytes, **info: Any) -> ObjectReader:
    said = {"size": 5, "chunks": 2, "digest": digest_text(sha256(b"abcde").digest())} | info
    watch = cast("Watch[bytes]", Chunks(*found))
    return ObjectReader(ObjectInfo(name="a", bucket="b", **said), watch if said["chunks"] else None)


async def test_all_is_as_it_was_put() -> None:
    assert [chunk async for chunk in reader(b"abc", b"de")] == [b"abc", b"de"]
    assert [chunk async for chunk in reader(b"abc", b"de", digest="")] == [b"abc", b"de"]
    empty = sha256(b"").digest()
    assert [chunk async for chunk in reader(chunks=0, size=0, digest=digest_text(empty))] == []


@pytest.mark.parametrize(
    ("found", "handed_out"),
    [
        ([], []),
        ([b"abc"], [b"abc"]),
        ([b"abc", b"dX"], [b"abc"]),
        ([b"abc", b"d"], [b"abc"]),
        ([b"abc", b"def"], [b"abc"]),
        ([b"abcde"], [b"abcde"]),
        ([b"abcdef"], []),
    ],
)
async def test_what_is_not_as_it_was_put(found: list[bytes], handed_out: list[bytes]) -> None:
    reading, seen = reader(*found), list[bytes]()

    async def read() -> None:
        async for chunk in reading:
            seen.append(chunk)

    with pytest.raises(ObjectDamaged):
        await read()
    assert seen == handed_out


async def test_an_empty_object_with_another_digest() -> None:
    with pytest.raises(ObjectDamaged, match="b: the digest of 'a' is not SHA-256="):
        await anext(reader(chunks=0, size=0))
