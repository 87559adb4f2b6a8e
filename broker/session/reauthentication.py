"""Re-authentication of a connected client (MQTT 5.0, section 4.12.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.hooks.decisions import Deny
from trunkline.hooks.exchange import Continue, Exchange, Success
from trunkline.hooks.points import CLIENT_ENHANCED_AUTHENTICATE
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.packets import Auth, PacketType
from trunkline.mqtt.reasons import REASONS, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.outbound import Outbound
    from trunkline.broker.session.waiting import Waiting


def step(
    packet: Auth,
    channel: Channel,
    outbound: Outbound,
    waiting: Waiting,
    on_new_user: Callable[[], None],
) -> None:
    """Answer one AUTH packet.

    Raises:
        ProtocolError: the client broke the protocol, or failed to authenticate.
    """
    method = packet.properties.get("authentication_method")
    if method is None or method != channel.authentication_method:  # [MQTT-4.12.1-1]
        raise ProtocolError("AUTH with another method than that of the CONNECT")
    data = packet.properties.get("authentication_data", b"")
    if packet.reason == Reason.REAUTHENTICATE:
        exchange = channel.exchange = Exchange(method, data, again=True)
    elif channel.exchange is not None and packet.reason == Reason.CONTINUE_AUTHENTICATION:
        exchange = channel.exchange
        exchange.data = data
        exchange.first = False
    else:
        raise ProtocolError("AUTH without a running re-authentication")

    def decided(decision: Continue | Success | Deny | None) -> None:
        if isinstance(decision, Continue):
            outbound.answers.write(_auth(Reason.CONTINUE_AUTHENTICATION, exchange.method, decision.data))
            return
        channel.exchange = None
        if not isinstance(decision, Success):  # [MQTT-4.12.1-2]
            denial = decision if isinstance(decision, Deny) else Deny()
            known = denial.reason in REASONS[PacketType.DISCONNECT, False]  # many are only valid in CONNACK
            reason = denial.reason if known else Reason.NOT_AUTHORIZED
            raise ProtocolError(denial.text or "re-authentication failed", reason)
        client = channel.client
        if decision.username is not None and decision.username != client.username:
            client.username, client.superuser = decision.username, decision.superuser
            on_new_user()
        outbound.answers.write(_auth(Reason.SUCCESS, exchange.method, decision.data))

    hooks = waiting.context.services.hooks
    waiting.ask(
        channel,
        lambda: hooks.decide_login(CLIENT_ENHANCED_AUTHENTICATE, channel.client, exchange),
        decided,
        in_task=hooks.is_async(CLIENT_ENHANCED_AUTHENTICATE),
    )


def _auth(reason: Reason, method: str, data: bytes) -> Auth:
    packet = Auth(reason, {"authentication_method": method})
    if data:
        packet.properties["authentication_data"] = data
    return packet
