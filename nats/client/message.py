"""A message that has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.nats.errors import NatsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from trunkline.nats.protocol.headers import Headers, Status
    from trunkline.nats.protocol.operations import Deliver

    class Answering(Protocol):
        def answer(
            self, subject: str, payload: bytes, *, headers: Headers | Mapping[str, str] | None = None
        ) -> None: ...


class Message:
    __slots__ = ("_answering", "_wire", "payload")

    def __init__(self, wire: Deliver, answering: Answering) -> None:
        self._wire = wire
        self._answering = answering
        self.payload = wire.payload

    @property
    def size(self) -> int:
        """Bytes, with those of the headers."""
        return len(self.payload) + len(self._wire.block)

    @property
    def subject(self) -> str:
        return self._wire.subject.decode("utf-8", "surrogateescape")

    @property
    def reply(self) -> str:
        """Where an answer is to go; empty if none is asked for."""
        return self._wire.reply.decode("utf-8", "surrogateescape")

    @property
    def headers(self) -> Headers:
        """
        Raises:
            BadHeaders: what came is no block of headers.
        """
        return self._wire.headers

    @property
    def status(self) -> Status | None:
        """What the server says in place of a message.

        Raises:
            BadHeaders: what came is no block of headers.
        """
        return self._wire.status

    def respond(self, payload: bytes = b"", *, headers: Headers | Mapping[str, str] | None = None) -> None:
        """
        Raises:
            NatsError: no answer is asked for, or at what is no subject.
            BufferFull, ClientClosed: it cannot be sent.
        """
        if not self._wire.reply:
            raise NatsError(f"the message to {self.subject!r} asks for no answer")
        self._answering.answer(self.reply, payload, headers=headers)

    def __repr__(self) -> str:
        return f"<Message {self.subject!r}, {len(self.payload)} bytes>"
