"""What a client's user may have to handle: one class for each thing that was refused or lost.

`transient` says whether another attempt may succeed. The default retry policy asks nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trunkline.client.reason_table import PERMANENT_CONNACK, PERMANENT_DISCONNECT
from trunkline.mqtt.properties import NO_PROPERTIES
from trunkline.mqtt.reasons import in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trunkline.client.received import ReceivedMessage
    from trunkline.mqtt.properties import Properties


class ClientError(Exception):
    """Base of all errors of the client."""

    @property
    def transient(self) -> bool:
        """Whether another attempt may succeed."""
        return False


class ReasonedError(ClientError):
    """The server gave a reason."""

    #: What the server did.
    deed: ClassVar[str] = "the server refused"

    def __init__(self, reason: int, properties: Properties = NO_PROPERTIES, subject: str = "") -> None:
        """`subject` is what was refused."""
        text = properties.get("reason_string", "")
        words = f"{self.deed} {subject}".strip()
        super().__init__(f"{words}: {in_words(reason)} (0x{reason:02X}){f', {text}' if text else ''}")
        self.reason = reason
        self.properties = properties


class ConnectRefused(ReasonedError):
    """The server answered CONNECT with a refusal."""

    deed = "the server refused the connection"

    @property
    def transient(self) -> bool:
        return self.reason not in PERMANENT_CONNACK


class Disconnected(ClientError):
    """The connection has ended without a DISCONNECT of the server: the network failed, the server stopped answering, or
    it sent what no server may send. What was sent at QoS 0 may be lost."""

    @property
    def transient(self) -> bool:
        return True


class DisconnectedByServer(ReasonedError, Disconnected):
    """The server has ended the connection with a DISCONNECT."""

    deed = "the server ended the connection"

    @property
    def transient(self) -> bool:
        return self.reason not in PERMANENT_DISCONNECT


class ReauthenticationFailed(Disconnected):
    """The connection has ended because its re-authentication failed; `__cause__` says more. The next connection
    authenticates anew."""


class ConnectFailed(ClientError):
    """There is no connection: the address did not answer, TLS or WebSocket failed, or there was no CONNACK in time."""

    @property
    def transient(self) -> bool:
        return True


class AuthenticationFailed(ClientError):
    """The server failed to prove who it is, or an authenticator gave up."""


class SessionLost(ClientError):
    """The server no longer has the session that this client resumes: its subscriptions are gone, and so are the
    messages that the server kept for it. Nothing is subscribed again, because that would hide the loss."""

    def __init__(self) -> None:
        super().__init__("the server has lost the session, with its subscriptions and the messages that waited in it")


class RetriesExhausted(ClientError):
    """The retry policy made no further attempt. `__cause__` is the error of the last one."""


class ClientClosed(ClientError):
    """The client is closed, or was never opened."""

    def __init__(self) -> None:
        super().__init__("the client is not open")


# Of single requests


class PublishRefused(ReasonedError):
    """The server has received the message and refused it."""


class PublishesRefused(ClientError):
    """The server refused some messages of a burst."""

    #: Refused messages that are kept.
    MAX_REFUSED: ClassVar = 10_000

    def __init__(self, refused: Sequence[tuple[bytes, int]], topic: str, count: int | None = None) -> None:
        #: How many were refused.
        self.count = len(refused) if count is None else count
        reason = refused[0][1]
        text = f"{self.count} of the messages to {topic}, the first: {in_words(reason)} (0x{reason:02X})"
        super().__init__(f"the server refused {text}")
        #: The payloads of the refused messages, and the reasons: of the first `MAX_REFUSED`.
        self.refused = refused


class SubscribeRefused(ClientError):
    """The server refused a topic filter. Those that it granted in the same request are unsubscribed."""

    subject: ClassVar[str] = "the subscription to"

    def __init__(self, reasons: Mapping[str, int], properties: Properties = NO_PROPERTIES) -> None:
        refused = (f"{name}: {in_words(reason)} (0x{reason:02X})" for name, reason in reasons.items() if reason >= 0x80)
        text = properties.get("reason_string", "")
        super().__init__(f"the server refused {self.subject} {'; '.join(refused)}{f', {text}' if text else ''}")
        #: The reason code for each topic filter, granted ones included.
        self.reasons = reasons
        self.properties = properties


class UnsubscribeRefused(SubscribeRefused):
    """The server refused to end a subscription."""

    subject = "to end the subscription to"


class NoResponse(ClientError, TimeoutError):
    """No client has answered the request: nobody has subscribed to its topic, or the time is over."""


class RequestFailed(ClientError):
    """The client that answered the request says that it failed, in words."""

    def __init__(self, words: str, response: ReceivedMessage) -> None:
        super().__init__(words)
        self.response = response


class RequestQueueFull(ClientError):
    """As many requests wait as the settings allow. This one was not taken."""


class RequestDiscarded(ClientError):
    """The request left the queue before it was sent: it was cancelled, or it waited longest and a newer one took its
    place in the full queue."""


class NotOffered(ClientError):
    """The server said in its CONNACK that it does not do this. It was not sent."""


class LargerThanServerAccepts(ClientError):
    """The packet is larger than the server's maximum packet size. It was not sent."""

    def __init__(self, size: int, maximum: int) -> None:
        super().__init__(f"a packet of {size:,} bytes; the server accepts {maximum:,}")


class NotSentAgain(ClientError):
    """It was sent, the connection was lost before the answer, and on the next one the server no longer takes it:
    `__cause__`, a `NotOffered` or `LargerThanServerAccepts`, says why. Whether the server has it is not known."""

    def __init__(self, cause: ClientError) -> None:
        super().__init__(f"it was sent and not answered, and cannot be sent on this connection: {cause}")
        self.__cause__ = cause
