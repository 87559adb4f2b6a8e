"""What streams of another shard refuse. Of a message of QoS 0 or 1 they say it when they were to take it; of one of
QoS 2, which they get at its PUBREL, they are asked before its PUBREC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trunkline.broker.late_refusals import LateRefusals
from trunkline.broker.shards.homes import FIRST
from trunkline.mqtt.message import Message
from trunkline.mqtt.message_row import message_from_row, message_to_row
from trunkline.router import Options, Router

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trunkline.broker.shards.peer import Peer
    from trunkline.broker.shards.words import Words
    from trunkline.mqtt.publication import Publication
    from trunkline.mqtt.session.ledger import Wait

#: What is said of a message that a stream has refused: its id, and why.
REFUSED: Final = "refused"
#: The question whether streams would take messages, each of which is a row without payload, and the payload's size.
MAY_TAKE: Final = "may take"
_ALL: Final = Options(qos=2)


class StreamRefusals(LateRefusals):
    def __init__(self, words: Words, refusal: Callable[[Message], str]) -> None:
        """`refusal` is that of the streams here."""
        super().__init__()
        self._words = words
        self._refusal = refusal
        #: The filters of streams elsewhere.
        self._routes: Router[Peer] = Router()
        words.hear(REFUSED, lambda _, refused: self.refused(int.from_bytes(refused[0], "big"), refused[1]))
        words.answer(MAY_TAKE, self._answer)

    def route(self, peer: Peer, filter: str, *, in_stream: bool) -> None:
        """Whether a stream there takes what matches."""
        if in_stream:
            self._routes.subscribe(peer, filter, _ALL)
        elif self._routes.subscriptions:
            self._routes.unsubscribe(peer, filter)

    def concern(self, publication: Publication) -> bool:
        """Whether a stream elsewhere takes something of it."""
        return bool(self._routes.subscriptions) and any(map(self._routes.match, publication.topics))

    def tell(self, peer: Peer, message: Message, why: str) -> None:
        """A stream here has refused it, which came from there."""
        self._words.tell_one(peer.number, REFUSED, (message.guid.to_bytes(16, "big"), why))

    def asked(self, publication: Publication, refusals: list[str]) -> Wait | None:
        if not self.concern(publication):
            return None
        question = [
            (message_to_row(Message(message.topic, b"", 2, properties=message.properties), 0.0), len(message.payload))
            for message in publication.messages
        ]

        def wait(action: Callable[[], None]) -> None:
            def answered(said: Sequence[str] | None) -> None:
                refusals.extend([""] * publication.count if said is None else said)
                action()

            self._words.ask(FIRST, MAY_TAKE, question, answered)

        return wait

    def _answer(self, shard: int, question: Sequence[tuple[Any, int]], answer: Callable[[list[str]], None]) -> None:
        del shard
        refusals: list[str] = []
        for row, size in question:
            message = message_from_row(row, 0.0)
            message.payload = bytes(size)  # its size is what counts
            refusals.append(self._refusal(message))
        answer(refusals)
