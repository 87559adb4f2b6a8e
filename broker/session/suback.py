"""A SUBACK or UNSUBACK while it is made: hooks, access decisions and routes each have their part in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trunkline.mqtt.explanations import reason_string
from trunkline.mqtt.properties import NO_PROPERTIES

if TYPE_CHECKING:
    from trunkline.broker.session.channel import Channel
    from trunkline.hooks.client import ClientInfo
    from trunkline.mqtt.properties import Properties
    from trunkline.mqtt.session.ledger import Owed
    from trunkline.router import Options


@dataclass(slots=True, eq=False)
class SubscriptionAnswer:
    """A reason for each filter, and the filters to act on."""

    client: ClientInfo
    #: The requesting connection; None if no client is connected.
    channel: Channel | None
    #: 0 when a plugin or an operator asked on the client's behalf: then no packet answers.
    packet_id: int
    reasons: list[int]
    #: The accepted filters, and the position of each in the answer.
    filters: list[str] = field(default_factory=lambda: [])
    places: list[int] = field(default_factory=lambda: [])
    #: The subscriptions to remove, as they were at the time of the request.
    before: list[Options | None] = field(default_factory=lambda: [])
    text: str = ""
    #: Its place among the answers owed to the client.
    owed: Owed | None = None

    def accept(self, place: int, filter: str) -> None:
        self.filters.append(filter)
        self.places.append(place)

    def refuse(self, place: int, reason: int, text: str = "") -> None:
        self.reasons[place] = reason
        self.text = self.text or text

    @property
    def properties(self) -> Properties:
        explained = self.channel is not None and self.channel.problem_information
        return reason_string(self.text) if explained else NO_PROPERTIES
