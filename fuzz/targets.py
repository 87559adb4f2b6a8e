"""What is fuzzed. A target takes any bytes, and fails with an exception; what it promises is in its docstring."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.mqtt.exchange import all_same, is_first, same
from trunkline.config.errors import ConfigError, Problem
from trunkline.config.reader import load
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.encoder import encode
from trunkline.mqtt.packets import Acknowledgements
from trunkline.mqtt.publication import PublishBatch
from trunkline.mqtt.versions import Version

#: Where files of the targets are written: in memory if the system has a folder there.
_MEMORY: Final = Path("/dev/shm")


def decoder(data: bytes) -> None:
    """Bytes yield packets, or an error that can be answered; split anywhere, they yield the same; packets that come
    together are the same as packets one by one; and a packet that is encoded again is decoded as the same.

    The first byte chooses version, side and limits, the second how the rest is split.
    """
    if len(data) < 3:
        return
    options, split, stream = data[0], data[1], data[2:]
    version = [*Version, None][options & 3]
    settings: dict[str, Any] = {
        "server": version is None or not options & 4,
        "version": version,
        "max_packet_size": 100 if options & 8 else 1_000_000,
        "strict_utf8": not options & 16,
        "max_filters": 3 if options & 32 else 0,
    }
    whole = Decoder(**settings)
    packets: list[Any] = [*whole.feed(stream)]
    error = whole.error
    assert error is None or (error.reason >= 0x80 and str(error))
    assert whole.buffered <= len(stream)

    split_decoder = Decoder(**settings)
    pieces: list[Any] = [packet for piece in _split(stream, split) for packet in split_decoder.feed(piece)]
    assert all_same(packets, pieces)
    assert (split_decoder.error and split_decoder.error.reason) == (error and error.reason)
    assert split_decoder.buffered == whole.buffered
    assert split_decoder.version == whole.version

    gathering = Decoder(**settings, gathers=True)
    singles = list[Any]()
    for packet in gathering.feed(stream):
        if isinstance(packet, PublishBatch):
            singles += packet.messages
        elif isinstance(packet, Acknowledgements):
            singles += map(packet.kind, packet.packet_ids)
        else:
            singles.append(packet)
    assert all_same(packets, singles)
    assert (gathering.error and gathering.error.reason) == (error and error.reason)

    for packet in packets:
        assert whole.version is not None
        settings["version"] = None if is_first(packet) else whole.version
        again = Decoder(**settings | {"max_packet_size": 2_000_000, "max_filters": 0})
        assert same(again.feed(encode(packet, whole.version))[0], packet)


def _split(stream: bytes, seed: int) -> list[bytes]:
    """Each byte on its own for 0, else pieces of different sizes."""
    if not seed:
        return [bytes((byte,)) for byte in stream]
    sizes = [seed & 15 or 16, seed >> 4 or 16]
    pieces = list[bytes]()
    while stream:
        size = sizes[len(pieces) % 2]
        pieces.append(stream[:size])
        stream = stream[size:]
    return pieces


def configuration(data: bytes) -> None:
    """A file yields settings, or errors that name their source and fit a terminal's screen.

    Lines up to an empty one are variables of the environment, NAME=VALUE; the rest is the file.
    """
    head, _, file = data.rpartition(b"\n\n")
    environ = dict[str, str]()
    for line in head.decode(errors="surrogateescape").splitlines():
        name, mark, value = line.partition("=")
        if mark and name and "\0" not in line:
            environ[f"TRUNKLINE_{name}"] = value
    with tempfile.NamedTemporaryFile(dir=_MEMORY if _MEMORY.is_dir() else None, suffix=".toml") as written:
        written.write(file)
        written.flush()
        problems: Sequence[Problem] = ()
        try:
            load(written.name, environ)
        except ConfigError as error:
            problems = error.problems
            assert problems, "an error without a problem"
        for problem in problems:
            assert problem.source
            assert len(str(problem)) < 10_000, f"{len(str(problem))} characters"


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {"decoder": decoder, "configuration": configuration}
