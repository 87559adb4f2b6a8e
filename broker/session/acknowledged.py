"""The client's acknowledgements of messages, one or many in a row: what the broker does at each of their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trunkline.broker.metrics import DropReason
from trunkline.hooks.points import DELIVERY_COMPLETED, MESSAGE_ACKED
from trunkline.mqtt.packets import Pubrel
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.session.states import Effect
from trunkline.mqtt.session.window import deliveries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.broker.routes import Subscriber
    from trunkline.broker.session.context import SessionContext
    from trunkline.broker.session.outbound import Outbound
    from trunkline.mqtt.packets import Acknowledgement, Acknowledgements
    from trunkline.mqtt.session.window import Together
    from trunkline.router import Target

    Messages = Sequence[Together[Target[Subscriber]]]


class Acknowledged:
    """The acknowledgements of one session."""

    __slots__ = ("_hooks", "_metrics", "_outbound", "_session")

    def __init__(self, context: SessionContext, outbound: Outbound) -> None:
        self._session = context.session
        self._hooks = context.services.hooks
        self._metrics = context.services.metrics
        self._outbound = outbound

    def answered(self, packet: Acknowledgement | Acknowledgements) -> None:
        """
        Raises:
            ProtocolError: a message waits for an acknowledgement of another kind.
        """
        for effect, packet_ids, messages in self._session.inflight.answered(
            packet, self._outbound.now, self._hooks.delivery_completed
        ):
            self._effects[effect](self, packet_ids, messages)

    def _taken(self, packet_ids: Sequence[int], messages: Messages) -> None:
        self._metrics.messages_acked += len(packet_ids)
        if self._hooks.message_acked:
            self._notify_acked(messages)
        if self._hooks.delivery_completed:
            self._notify_completed(messages)

    def _released(self, packet_ids: Sequence[int], messages: Messages) -> None:
        self._metrics.messages_acked += len(packet_ids)
        self._outbound.release(packet_ids)
        if self._hooks.message_acked:
            self._notify_acked(messages)

    def _completed(self, _packet_ids: Sequence[int], messages: Messages) -> None:
        if self._hooks.delivery_completed:
            self._notify_completed(messages)

    def _refused(self, _packet_ids: Sequence[int], messages: Messages) -> None:
        for publication, _ in deliveries(messages):
            self._outbound.drop(publication, DropReason.REFUSED)

    def _not_found(self, packet_ids: Sequence[int], _messages: Messages) -> None:
        for packet_id in packet_ids:
            self._outbound.answers.write(Pubrel(packet_id, Reason.PACKET_IDENTIFIER_NOT_FOUND))

    def _notify_acked(self, messages: Messages) -> None:
        for publication, _ in deliveries(messages):
            self._hooks.notify(MESSAGE_ACKED, self._session.client, publication)

    def _notify_completed(self, messages: Messages) -> None:
        for publication, delivery in deliveries(messages):
            self._hooks.notify(DELIVERY_COMPLETED, self._session.client, publication, delivery)

    _effects: ClassVar[dict[Effect, Callable[[Acknowledged, Sequence[int], Any], None]]] = {
        Effect.NOTHING: lambda _, _ids, _messages: None,
        Effect.TAKEN: _taken,
        Effect.RELEASED: _released,
        Effect.COMPLETED: _completed,
        Effect.REFUSED: _refused,
        Effect.PUBREL: lambda self, packet_ids, _: self._outbound.release(packet_ids),
        Effect.PUBREL_NOT_FOUND: _not_found,
    }
