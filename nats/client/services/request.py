"""Requests to an endpoint, and answers that are errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.nats.client.message import Message
from trunkline.nats.client.subscription import BaseSubscription
from trunkline.nats.errors import ServiceError
from trunkline.nats.protocol.headers import Headers
from trunkline.nats.protocol.numbers import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.nats.client.message import Answering
    from trunkline.nats.protocol.operations import Deliver

ERROR: Final = "Nats-Service-Error"
ERROR_CODE: Final = "Nats-Service-Error-Code"


class ServiceRequest(Message):
    """Answered by `respond` or `respond_error`, once or more often, or not at all."""

    __slots__ = ("error",)

    def __init__(self, wire: Deliver, answering: Answering) -> None:
        super().__init__(wire, answering)
        #: What it was answered with last, if that was an error.
        self.error: ServiceError | None = None

    def respond_error(
        self,
        code: int,
        text: str,
        payload: bytes = b"",
        *,
        headers: Headers | Mapping[str, str] | None = None,
    ) -> None:
        """Answer with an error: a number, which is often one of HTTP, and a text for people. To raise `ServiceError` in
        a handler does the same. Raises as `respond` does."""
        error = ServiceError(code, text)
        own = headers.pairs() if isinstance(headers, Headers) else (headers or {}).items()
        self.respond(payload, headers=Headers([*own, (ERROR, error.text), (ERROR_CODE, str(code))]))
        self.error = error


class EndpointSubscription(BaseSubscription[ServiceRequest]):
    async def receive(self) -> ServiceRequest:
        return ServiceRequest(await self._take(), self)


def service_error_of(answer: Message) -> ServiceError | None:
    """The error that a service has answered with, if it has. A code that is no number is 0.

    Raises:
        BadHeaders: the headers are none.
    """
    text, code = answer.headers.get(ERROR), answer.headers.get(ERROR_CODE)
    if text is None and code is None:
        return None
    return ServiceError(number_of(code or "") or 0, text or "")
