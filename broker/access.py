"""Who may publish and read what: the access rules' answers, remembered for each connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.hooks.decisions import ALLOW
from trunkline.hooks.points import CLIENT_CHECK_ACL

if TYPE_CHECKING:
    from trunkline.broker.config import Config
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.session.channel import Channel
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Action


class Access:
    """Asks the hook chain, and remembers what it said on the `Channel`, so that the hot path is one look into a dict."""

    __slots__ = ("_cache_size", "_default", "_hooks", "_metrics", "_read_as_subscribe")

    def __init__(self, hooks: Hooks, metrics: Metrics, config: Config) -> None:
        self._hooks = hooks
        self._metrics = metrics
        self._default = config.acl.no_match == "allow"
        self._cache_size = config.acl.cache_size
        # a subscription that should have been refused was granted, so each message is checked instead
        self._read_as_subscribe = config.mqtt.subscribe_denied == "grant"

    def decide(self, client: ClientInfo, action: Action, topic: str, qos: int = 0, retain: bool = False) -> bool:
        if client.superuser:
            return True
        decision = self._hooks.decide(CLIENT_CHECK_ACL, client, action, topic, qos, retain)
        allowed = decision is ALLOW if decision is not None else self._default or action == "receive"
        if allowed:
            self._metrics.authorization_allow += 1
        else:
            self._metrics.authorization_deny += 1
        return allowed

    def may_publish(self, channel: Channel, topic: str, qos: int, retain: bool) -> bool:
        """A rule may depend on QoS and retain, so each combination is remembered apart. `$SYS` is the broker's own."""
        allowed = topic[:5] != "$SYS/" and self.decide(channel.client, "publish", topic, qos, retain)
        self._remember(channel.may_publish[qos << 1 | retain], topic, allowed)
        return allowed

    def may_read(self, channel: Channel, topic: str) -> bool:
        """May messages of this topic be given to the client, whatever filter it subscribed with?"""
        allowed = self.decide(channel.client, "receive", topic)
        if allowed and self._read_as_subscribe:
            allowed = self.decide(channel.client, "subscribe", topic)
        self._remember(channel.may_read, topic, allowed)
        return allowed

    def may_read_retained(self, client: ClientInfo, topic: str) -> bool:
        """What was retained is given only to those who might have subscribed to this very topic."""
        return self.decide(client, "subscribe", topic)

    def _remember(self, decisions: dict[str, bool], topic: str, allowed: bool) -> None:
        if len(decisions) >= self._cache_size:
            decisions.clear()
        if self._cache_size:
            decisions[topic] = allowed
