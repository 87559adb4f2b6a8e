"""Handles the client's acknowledgements, one or many in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trunkline.broker.metrics import DropReason
from trunkline.hooks.points import DELIVERY_COMPLETED, MESSAGE_ACKED
from trunkline.mqtt.packets import Acknowledgements, PacketType, Pubrel
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.window import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.outbound import Outbound
    from trunkline.mqtt.packets import Acknowledgement

_WAIT_PUBACK: Final = State.WAIT_PUBACK
#: Reason codes from here on are failures.
FAILURE: Final = 0x80


class Acknowledged:
    """The acknowledgements of one session."""

    __slots__ = ("_hooks", "_metrics", "_outbound", "_session", "_window")

    def __init__(self, context: SessionContext, outbound: Outbound) -> None:
        self._session = context.session
        self._hooks = context.services.hooks
        self._metrics = context.services.metrics
        self._outbound = outbound
        self.bind()

    def bind(self) -> None:
        """Take the session's window, which may be a new one."""
        self._window = self._session.inflight

    def puback(self, packet: Acknowledgement | Acknowledgements) -> None:
        """End QoS 1 exchanges, for any reason code."""
        packet_ids, hooks, window = packet.packet_ids, self._hooks, self._window
        if not window.expects(packet_ids, _WAIT_PUBACK):
            self._one_by_one(packet, _WAIT_PUBACK, self.puback)
        elif packet.reason >= FAILURE:
            self._refuse(packet_ids)
        else:
            self._metrics.messages_acked += packet.count
            observed = hooks.message_acked or hooks.delivery_completed
            ended = window.deliveries(packet_ids) if observed else ()
            window.end(packet_ids)
            for publication, _ in ended:
                hooks.notify(MESSAGE_ACKED, self._session.client, publication)
            for publication, delivery in ended if hooks.delivery_completed else ():
                hooks.notify(DELIVERY_COMPLETED, self._session.client, publication, delivery)

    def pubrec(self, packet: Acknowledgement | Acknowledgements) -> None:
        """Answer with PUBREL, unless the client refuses.  # [MQTT-4.3.3-3] [MQTT-4.3.3-4]"""
        packet_ids, hooks, window = packet.packet_ids, self._hooks, self._window
        if not window.expects(packet_ids, State.WAIT_PUBREC):
            if packet.count == 1 and packet.reason < FAILURE and self._pubrec_again(packet_ids[0]):
                return
            self._one_by_one(packet, State.WAIT_PUBREC, self.pubrec)
        elif packet.reason >= FAILURE:
            self._refuse(packet_ids)
        else:
            self._metrics.messages_acked += len(packet_ids)
            taken = window.deliveries(packet_ids) if hooks.message_acked else ()
            window.release(packet_ids, self._outbound.now, keeps_payload=bool(hooks.delivery_completed))
            self._pubrel(packet_ids)
            for publication, _ in taken:
                hooks.notify(MESSAGE_ACKED, self._session.client, publication)

    def _pubrel(self, packet_ids: Sequence[int]) -> None:
        """The PUBREC is stored before: after a crash the message must not be sent once more.  # [MQTT-4.3.3-6]"""
        durable = self._session.durable
        self._outbound.answers.acknowledge(
            PacketType.PUBREL, packet_ids, None if durable is None else durable.after_commit
        )

    def pubcomp(self, packet: Acknowledgement | Acknowledgements) -> None:
        """End QoS 2 exchanges."""
        packet_ids, hooks = packet.packet_ids, self._hooks
        if not self._window.expects(packet_ids, State.WAIT_PUBCOMP):
            self._one_by_one(packet, State.WAIT_PUBCOMP, self.pubcomp)
            return
        ended = self._window.deliveries(packet_ids) if hooks.delivery_completed else ()
        self._window.end(packet_ids)
        for publication, delivery in ended:
            hooks.notify(DELIVERY_COMPLETED, self._session.client, publication, delivery)

    def _one_by_one(
        self, packet: Acknowledgement | Acknowledgements, state: State, handle: Callable[[Acknowledgement], None]
    ) -> None:
        """Not all packets in a row may be expected: one may be late, or of the wrong kind; those before it count."""
        if isinstance(packet, Acknowledgements):
            packet_ids = packet.packet_ids
            if state is not State.WAIT_PUBREC:  # which alone is answered although its message is not here
                packet_ids = self._window.opened(packet_ids)
            for packet_id in packet_ids:
                handle(packet.kind(packet_id))
        else:
            self._window.check(packet.packet_id, state)

    def _pubrec_again(self, packet_id: int) -> bool:
        """For a message that is not in the window any more, or was released before."""
        found = self._window.state(packet_id)
        if found is None:
            self._outbound.answers.write(Pubrel(packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))
        elif found is State.WAIT_PUBCOMP:
            self._pubrel((packet_id,))
        return found is None or found is State.WAIT_PUBCOMP

    def _refuse(self, packet_ids: Sequence[int]) -> None:
        for publication, _ in self._window.deliveries(packet_ids):
            self._outbound.drop(publication, DropReason.REFUSED)
        self._window.end(packet_ids)
