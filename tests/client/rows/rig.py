"""What the rows have in common: requests of three kinds, losses of four kinds, and the packets of the client."""

import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pytest
import trio

from tests.client.opening import session_of
from trunkline.client.errors import PublishRefused, SubscribeRefused, UnsubscribeRefused
from trunkline.client.session_client import SessionClient
from trunkline.client.settings import ConnectionSettings
from trunkline.client.transport import open_stream
from trunkline.mqtt.packet_types import PacketType
from trunkline.mqtt.reasons import REASONS
from trunkline.testing import Broker


class NoSuchHost(trio.abc.HostnameResolver):
    async def getaddrinfo(self, *_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def getnameinfo(self, *_: object, **__: object) -> Any:
        raise NotImplementedError


class Network:
    """The way to a broker in this process. It counts the attempts, and some of them fail."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.attempts = 0
        #: Attempts to come for which the name of the server is unknown.
        self.unknown = 0

    async def open_stream(self, settings: ConnectionSettings) -> trio.abc.Stream:
        self.attempts += 1
        await trio.lowlevel.checkpoint()
        if not self.unknown:
            return self.broker.connect()
        self.unknown -= 1
        trio.socket.set_custom_hostname_resolver(NoSuchHost())
        try:
            return await open_stream(settings)
        finally:
            trio.socket.set_custom_hostname_resolver(None)

    def session(self, **options: Any) -> SessionClient:
        return session_of(self.broker, open_stream=self.open_stream, keep_alive=10, ping_timeout=5, **options)


def sent(broker: Broker, packet: str) -> list[Any]:
    """The packets of this type that clients send from now on."""
    found: list[Any] = []
    # append returns nothing, so none is dropped
    broker.faults.drop(packet, direction="from", where=found.append).optional()
    return found


# Losses

#: The connection is lost before this answer of the server arrives.
Loss: TypeAlias = Callable[[Network, str], None]


def unknown_host(network: Network, answer: str) -> None:
    """And then the server's name is unknown for a while."""
    if answer != "CONNACK":
        broken_stream(network, answer)
    network.unknown = 2


def broken_stream(network: Network, answer: str) -> None:
    network.broker.faults.cut(before=answer)


def no_connack(network: Network, answer: str) -> None:
    """And then the server does not answer for a while."""
    if answer != "CONNACK":
        broken_stream(network, answer)
    network.broker.faults.drop("CONNACK", times=2)


def no_pingresp(network: Network, answer: str) -> None:
    """The server is silent."""
    network.broker.faults.drop(answer, times=1)
    network.broker.faults.drop("PINGRESP", times=1).optional()


def each_loss(*losses: Loss) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("loss", losses, ids=[loss.__name__ for loss in losses])


# Requests


@dataclass(frozen=True, slots=True)
class Operation:
    packet: str
    answer: str
    ask: Callable[[SessionClient], Awaitable[object]]
    refusal: type[Exception]

    @property
    def refusals(self) -> list[int]:
        return sorted(reason for reason in REASONS[PacketType[self.answer], False] if reason >= 0x80)

    def refuse(self, broker: Broker, reason: int) -> None:
        """The broker's answer becomes a refusal."""
        broker.faults.corrupt(self.answer, lambda data: refused(data, reason), times=1)


def refused(data: bytes, reason: int) -> bytes:
    """A PUBACK, SUBACK or UNSUBACK of 5.0, without properties, with another reason."""
    kind, packet_id = data[:1], data[2:4]
    return kind + (b"\x03" + packet_id if kind == b"\x40" else b"\x04" + packet_id + b"\0") + bytes([reason])


PUBLISH: Final = Operation("PUBLISH", "PUBACK", lambda client: client.publish("t", b"x", qos=1), PublishRefused)
SUBSCRIBE: Final = Operation("SUBSCRIBE", "SUBACK", lambda client: client.subscribe("t", qos=1), SubscribeRefused)
UNSUBSCRIBE: Final = Operation(
    "UNSUBSCRIBE", "UNSUBACK", lambda client: client.unsubscribe_from("t"), UnsubscribeRefused
)
OPERATIONS: Final = (PUBLISH, SUBSCRIBE, UNSUBSCRIBE)


def each_refusal(operation: Operation) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("reason", operation.refusals, ids=hex)


@pytest.fixture
def network(mqtt_broker: Broker) -> Network:
    return Network(mqtt_broker)
