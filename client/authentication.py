"""Enhanced authentication (5.0): what a user provides for it, and the properties that carry it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trunkline.client.errors import AuthenticationFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.mqtt.properties import Properties


class Authenticator(Protocol):
    """The client's side of enhanced authentication. A method may raise an exception to give up."""

    #: Its name, as the server knows it.
    method: str

    def begin(self) -> bytes | None:
        """The first data; also of a re-authentication. None for none."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The data that answers the server's."""
        ...

    def finish(self, data: bytes) -> None:
        """The server has accepted the client, and says this last."""
        ...


class Authentication:
    """The exchange of one connection. All methods raise `AuthenticationFailed` when the authenticator gives up."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        #: The same in every packet.  # [MQTT-4.12.0-5]
        self.method = authenticator.method

    def begin(self) -> Properties:
        """Of CONNECT, or of the AUTH that asks for a re-authentication."""
        return self._properties(self._authenticator.begin)

    def answer(self, properties: Properties) -> Properties:
        """Of the AUTH that answers one with these properties."""
        return self._properties(lambda: self._authenticator.answer(properties.get("authentication_data", b"")))

    def finish(self, properties: Properties) -> None:
        """The last packet of the server has these."""
        self._ask(lambda: self._authenticator.finish(properties.get("authentication_data", b"")))

    def _properties(self, step: Callable[[], bytes | None]) -> Properties:
        data = self._ask(step)
        properties: Properties = {"authentication_method": self.method}
        if data is not None:
            properties["authentication_data"] = data
        return properties

    def _ask(self, step: Callable[[], bytes | None]) -> bytes | None:
        try:
            return step()
        except Exception as error:
            raise AuthenticationFailed(f"the authenticator gave up: {error}") from error
