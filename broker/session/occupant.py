"""Whoever has a client id: a session of MQTT, or the client of another protocol, which ends with its connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from trunkline.actors import Ref, Scheduler
    from trunkline.broker.session.channel import Channel
    from trunkline.broker.session.slow_consumer import Budget
    from trunkline.broker.session.state import Session
    from trunkline.config.config import Config
    from trunkline.hooks.client import ClientInfo


class Occupant(Protocol):
    """Its actor takes the messages that `trunkline.broker.session.mail` has for sessions from others than their
    connections: Kick, End, SubscribeFor, UnsubscribeFor, RulesChanged, PublishWill."""

    @property
    def session(self) -> Session: ...
    @property
    def ref(self) -> Ref[Any]: ...
    @property
    def scheduler(self) -> Scheduler: ...
    @property
    def client(self) -> ClientInfo:
        """While it is not connected, as of its last connection."""
        ...

    @property
    def channel(self) -> Channel | None:
        """Its connection."""
        ...

    @property
    def config(self) -> Config:
        """The settings for its client."""
        ...

    @property
    def waiting_budget(self) -> Budget:
        """The seconds that subscribers may keep it waiting in vain."""
        ...

    @property
    def protocol(self) -> str:
        """What its client speaks: the version of MQTT, or another name."""
        ...

    @property
    def speaks_mqtt(self) -> bool:
        """Whether it is a session of MQTT: others can subscribe on its behalf, and it may go on in another process."""
        ...

    def forget_connection(self) -> None:
        """Stop sending to and receiving from the client: the node ends like a killed process."""
        ...
