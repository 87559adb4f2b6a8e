"""Frames as they are on a link."""

from trunkline.broker.links.frames import LinkFrame, encode


def wire_of(frame: LinkFrame) -> bytes:
    return b"".join(encode(frame))
