"""The client's acknowledgements of what it was sent, one by one or many in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from trunkline.broker.metrics import DropReason
from trunkline.hooks.points import DELIVERY_COMPLETED, MESSAGE_ACKED
from trunkline.mqtt.batch import PublishBatch
from trunkline.mqtt.inflight import Entry, Miss, State
from trunkline.mqtt.packets import Puback, Pubcomp, Pubrec, Pubrel
from trunkline.mqtt.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trunkline.broker.session.outbound import Outbound
    from trunkline.broker.session.services import Services
    from trunkline.broker.session.state import Session
    from trunkline.hooks.chain import Chain
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Notify
    from trunkline.mqtt.message import Message

#: From here on a reason code is a no.
FAILURE: Final = 0x80


class Acknowledged:
    """Of one session."""

    __slots__ = ("_outbound", "_services", "_session", "_window")

    def __init__(self, session: Session, services: Services, outbound: Outbound) -> None:
        self._session = session
        self._services = services
        self._window = session.inflight
        self._outbound = outbound

    def puback(self, packet: Puback) -> None:
        entry = self._window.puback(packet.packet_id)
        if isinstance(entry, Miss):
            return
        if packet.reason >= FAILURE:
            self._outbound.drop(entry.of(packet.packet_id).message, DropReason.REFUSED)
            return
        hooks = self._services.hooks
        self._services.metrics.messages_acked += 1
        if hooks.message_acked:
            hooks.notify(MESSAGE_ACKED, self._session.client, entry.of(packet.packet_id).message)
        if hooks.delivery_completed:
            hooks.notify(DELIVERY_COMPLETED, self._session.client, entry.of(packet.packet_id).message)

    def pubacks(self, packet_ids: Sequence[int]) -> None:
        """As `puback`, many of them, none of which refuses."""
        hooks = self._services.hooks
        acked, completed = hooks.message_acked_bursts, hooks.delivery_completed_bursts
        if acked is None or completed is None:
            for packet_id in packet_ids:
                self.puback(Puback(packet_id))
            return
        ended = self._window.waiting(packet_ids, State.WAIT_PUBACK) if acked or completed else ()
        before = len(self._window)
        try:
            self._window.pubacks(packet_ids)
        finally:  # where one is wrong, those before it count
            self._services.metrics.messages_acked += before - len(self._window)
            self._tell(MESSAGE_ACKED, acked, ended)
            self._tell(DELIVERY_COMPLETED, completed, ended)

    def pubrecs(self, packet_ids: Sequence[int]) -> None:
        """As `pubrec`, many of them, none of which refuses."""
        acked = self._services.hooks.message_acked_bursts
        taken = self._window.waiting(packet_ids, State.WAIT_PUBREC) if acked else ()
        if acked is None or not self._window.pubrecs(packet_ids, self._outbound.now):
            for packet_id in packet_ids:
                self.pubrec(Pubrec(packet_id))
        else:
            self._services.metrics.messages_acked += len(packet_ids)
            self._tell(MESSAGE_ACKED, acked, taken)
            self._outbound.write_all(Pubrel, packet_ids)

    def pubcomps(self, packet_ids: Sequence[int]) -> None:
        """As `pubcomp`, many of them."""
        completed = self._services.hooks.delivery_completed_bursts
        if completed is None:
            for packet_id in packet_ids:
                self.pubcomp(Pubcomp(packet_id))
        else:
            ended = self._window.waiting(packet_ids, State.WAIT_PUBCOMP) if completed else ()
            try:
                self._window.pubcomps(packet_ids)
            finally:
                self._tell(DELIVERY_COMPLETED, completed, ended)

    def _tell(
        self, point: Notify[ClientInfo, Message], bursts: Chain, messages: Iterable[Message | PublishBatch]
    ) -> None:
        """Let the hooks of a point look at messages, some of which are still together."""
        hooks = self._services.hooks
        if bursts:
            for each in messages:
                if type(each) is PublishBatch:
                    hooks.look(point, bursts, self._session.client, each)
                else:
                    hooks.notify(point, self._session.client, cast("Message", each))

    def pubrec(self, packet: Pubrec) -> None:
        if packet.reason >= FAILURE:
            refused = self._window.refuse(packet.packet_id)
            if not isinstance(refused, Miss):
                self._outbound.drop(refused.of(packet.packet_id).message, DropReason.REFUSED)
            return
        entry = self._window.pubrec(packet.packet_id, self._outbound.now, bool(self._services.hooks.delivery_completed))
        if entry is Miss.NOT_FOUND:
            self._outbound.write(Pubrel(packet.packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))
        else:
            self._outbound.write(Pubrel(packet.packet_id))  # [MQTT-4.3.3-3]
            if type(entry) is Entry:
                self._services.metrics.messages_acked += 1
                if self._services.hooks.message_acked:
                    self._services.hooks.notify(MESSAGE_ACKED, self._session.client, entry.message)

    def pubcomp(self, packet: Pubcomp) -> None:
        entry = self._window.pubcomp(packet.packet_id)
        if not isinstance(entry, Miss) and self._services.hooks.delivery_completed:
            self._services.hooks.notify(DELIVERY_COMPLETED, self._session.client, entry.of(packet.packet_id).message)
