"""Where streams lie in the store. Every key begins with the number of its stream."""

from typing import Final

from trunkline.store import Space

#: One row a stream: its configuration and its head.
STREAMS: Final = Space("streams")
#: The messages, in blocks; a block's key ends with a sequence that is not below its last one.
STREAM_BLOCKS: Final = Space("stream-blocks")
#: Which messages of a chunk of sequences are deleted.
STREAM_DELETED: Final = Space("stream-deleted")
#: What has changed about topics, in the order of the commits.
STREAM_TOPICS: Final = Space("stream-topics")
#: Messages that have a life of their own, in the order in which it ends.
STREAM_DEADLINES: Final = Space("stream-deadlines")
#: Two rows a consumer: what it is, and where it is.
CONSUMERS: Final = Space("consumers")

#: The spaces whose rows a deleted stream leaves behind.
OF_A_STREAM: Final = (STREAM_BLOCKS, STREAM_DELETED, STREAM_TOPICS, STREAM_DEADLINES, CONSUMERS)

#: Bytes of a stream's number.
STREAM_SIZE: Final = 4


def stream_key(stream: int) -> bytes:
    return stream.to_bytes(STREAM_SIZE, "big")


def stream_number(row_key: bytes) -> int:
    return int.from_bytes(row_key[:STREAM_SIZE], "big")


def key(stream: int, number: int) -> bytes:
    return stream.to_bytes(4, "big") + number.to_bytes(8, "big")


def number_in(row_key: bytes) -> int:
    return int.from_bytes(row_key[4:], "big")


def deadline_key(stream: int, tick: int, sequence: int) -> bytes:
    """By the tick in which messages end, and the sequence of the first of them."""
    return key(stream, tick) + sequence.to_bytes(8, "big")


def deadline_in(row_key: bytes) -> int:
    """The tick."""
    return int.from_bytes(row_key[4:12], "big")
