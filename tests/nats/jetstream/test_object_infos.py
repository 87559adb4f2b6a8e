import json
from hashlib import sha256
from typing import Any

import pytest

from trunkline.nats.jetstream.fields import BadReply
from trunkline.nats.jetstream.object_infos import (
    ObjectInfo,
    ObjectLink,
    ObjectOptions,
    digest_text,
    is_digest,
    object_info_of,
    subject_of,
)
from trunkline.nats.protocol.headers import Headers

#: As ADR-20 shows it, but for `metadata`, which is an object for all clients.
EXAMPLE = {
    "name": "object-name",
    "description": "object-desc",
    "metadata": {"owner": "infra"},
    "headers": {"key1": ["foo"], "key2": ["bar", "baz"]},
    "options": {"link": {"bucket": "link-to-bucket", "name": "link-to-name"}, "max_chunk_size": 8196},
    "bucket": "object-bucket",
    "nuid": "CkuyLEX4z2hbyjj1aWCfiH",
    "size": 344000,
    "chunks": 42,
    "digest": "SHA-256=abcdefghijklmnopqrstuvwxyz=",
    "deleted": True,
}


def test_as_json() -> None:
    info = object_info_of(json.dumps(EXAMPLE).encode(), 7.5)
    assert info == ObjectInfo(
        name="object-name",
        bucket="object-bucket",
        nuid="CkuyLEX4z2hbyjj1aWCfiH",
        size=344000,
        chunks=42,
        digest="SHA-256=abcdefghijklmnopqrstuvwxyz=",
        description="object-desc",
        headers=Headers([("key1", "foo"), ("key2", "bar"), ("key2", "baz")]),
        metadata={"owner": "infra"},
        options=ObjectOptions(link=ObjectLink(bucket="link-to-bucket", name="link-to-name"), chunk_size=8196),
        is_deleted=True,
        modified=7.5,
    )
    assert info.headers.all("key2") == ["bar", "baz"]
    assert json.loads(info.encode()) == EXAMPLE


def test_the_time_is_that_of_the_message_and_is_not_stored() -> None:
    info = object_info_of(b'{"name":"a","bucket":"b","mtime":"2023-11-14T22:13:20Z"}', 7.0)
    assert info.modified == 7.0
    assert b"mtime" not in info.encode()


def test_what_other_clients_add_stays() -> None:
    info = object_info_of(b'{"name":"a","bucket":"b","new":[1],"headers":null,"options":null}', 0.0)
    assert json.loads(info.encode()) == {"name": "a", "bucket": "b", "size": 0, "chunks": 0, "new": [1]}


@pytest.mark.parametrize(
    "said",
    [
        b"nonsense",
        b"7",
        b"{}",
        b'{"name":"a"}',
        b'{"name":"a","bucket":"b","size":"7"}',
        b'{"name":"a","bucket":"b","headers":7}',
        b'{"name":"a","bucket":"b","headers":{"a":["x\\ny"]}}',
        b'{"name":"a","bucket":"b","options":{"link":7}}',
        # with it the chunks of all objects would be removed
        b'{"name":"a","bucket":"b","nuid":">"}',
        b'{"name":"a","bucket":"b","nuid":"*"}',
        b'{"name":"a","bucket":"b","nuid":"a.b"}',
    ],
)
def test_nonsense(said: bytes) -> None:
    with pytest.raises(BadReply):
        object_info_of(said, 0.0)


def test_subjects() -> None:
    """ADR-20, Stream Configuration and Subject Templates: any name will do."""
    assert subject_of("b", "/a b/Ä>?") == "$O.b.M.L2EgYi_DhD4_"
    info = ObjectInfo(name="a", bucket="b", nuid="N")
    assert (info.subject, info.chunk_subject) == ("$O.b.M.YQ==", "$O.b.C.N")
    with pytest.raises(ValueError, match="the name of an object is empty"):
        subject_of("b", "")


def test_digests() -> None:
    digest = sha256(b"abc").digest()
    text = digest_text(digest)
    assert text == "SHA-256=ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0="
    assert is_digest(text, digest)
    assert is_digest(text.rstrip("="), digest)
    assert is_digest(text.replace("SHA", "sha"), digest)


@pytest.mark.parametrize("text", ["", "SHA-256=", "SHA-256=ungW", "SHA-256=ä", "MD5=ungW", "SHA-256"])
def test_no_digests(text: Any) -> None:
    assert not is_digest(text, sha256(b"abc").digest())
