"""A client's connection and a server that sends anything: what holds, whatever comes."""

from collections.abc import Iterable
from typing import cast

from tests.client.rig import Rig, payloads
from trunkline.client.connection import CLIENT_REASONS, Phase
from trunkline.client.errors import ClientError, Disconnected
from trunkline.client.requests import SubscribeRequest, UnsubscribeRequest
from trunkline.mqtt.decoder import Decoder
from trunkline.mqtt.packets import Disconnect, Packet, SubscriptionRequest
from trunkline.mqtt.versions import Version

#: QoS 1 and 2 messages that may wait for their acknowledgement here, and the largest packet.
RECEIVE_MAXIMUM = 5
MAX_PACKET_SIZE = 1000


class Echo:
    """An authenticator that believes anything."""

    method = "echo"

    def begin(self) -> bytes | None:
        return None

    def answer(self, challenge: bytes) -> bytes | None:
        return challenge

    def finish(self, data: bytes) -> None:
        pass


def rig_of(version: str = "5.0", *, is_open: bool = True, authenticates: bool = False) -> Rig:
    """A client that has sent one request of each kind, if its connection is open."""
    rig = Rig(
        version=version,
        receive_maximum=RECEIVE_MAXIMUM,
        max_packet_size=MAX_PACKET_SIZE,
        topic_aliases_in=2,
        authenticator=Echo() if authenticates and version == "5.0" else None,
    )
    requests = [
        rig.publish(payload=b"1", qos=1),
        rig.publish(payload=b"2", qos=2),
        SubscribeRequest([SubscriptionRequest("a"), SubscriptionRequest("b")]),
        UnsubscribeRequest(["a", "b"]),
    ]
    for request in requests[2:]:
        rig.add(request)
    if is_open:
        rig.open()
    return rig


def check(rig: Rig, pieces: Iterable[bytes]) -> None:
    """The bytes come. Nothing but a client's error is the result, what is sent is MQTT, and little is kept."""
    connection = rig.connection
    unacknowledged = 0
    decoder = Decoder(server=True, version=rig.settings.version if connection.phase is Phase.OPEN else None)
    sent = cast("list[Packet]", decoder.feed(connection.take_output(rig.now)))
    for piece in pieces:
        was_over = connection.phase is Phase.OVER
        handovers = connection.receive(piece, rig.now)
        assert not (was_over and handovers)
        unacknowledged += sum(len(payloads([each])) for each in handovers if each.publication.qos)
        if rig.settings.version is Version.V5:
            assert unacknowledged <= RECEIVE_MAXIMUM, "more than the receive maximum was let in"
        sent += cast("list[Packet]", decoder.feed(connection.take_output(rig.now)))
        assert decoder.error is None
    ends = [packet for packet in sent if isinstance(packet, Disconnect)]
    assert ends == sent[-1:] or not ends, "something was sent behind DISCONNECT"
    error = connection.error
    assert (error is not None) is (connection.phase is Phase.OVER)
    if error is not None:
        assert isinstance(error, ClientError)
        assert len(str(error)) > 10
        if "broke the protocol" in str(error) and rig.settings.version is Version.V5:
            assert ends
            assert ends[0].reason in CLIENT_REASONS
            assert ends[0].reason >= 0x80
    # whatever has come: who waits gets an answer in the end
    waiting = [rig.publish(payload=b"3", qos=1)]
    connection.lost(Disconnected("that is all"))
    rig.outgoing.fail(Disconnected("that is all"))
    assert all(request.is_done for request in waiting)
