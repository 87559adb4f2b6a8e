"""Access decisions, cached for each connection."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from trunkline.hooks.chain import CRASHED
from trunkline.hooks.decisions import ALLOW, Allow, Deny
from trunkline.hooks.points import CLIENT_ACL_DECIDED, CLIENT_CHECK_ACL
from trunkline.mqtt.explanations import quoted
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import bridge_state

if TYPE_CHECKING:
    from trunkline.broker.metrics import Metrics
    from trunkline.broker.session.channel import Channel
    from trunkline.config.config import Config
    from trunkline.hooks.chain import Hooks
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Action
    from trunkline.mqtt.message import Message


_logger = logging.getLogger("trunkline.access")

#: Characters. Decisions about longer topics are not remembered: a thousand of the longest would take 64 MB a
#: connection.
MAX_REMEMBERED: Final = 256

#: Denials for these reasons mean that no decision could be made.
_CANNOT_SAY: Final = frozenset({Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY})


class Question(NamedTuple):
    """May this client do that?"""

    client: ClientInfo
    action: Action
    #: Or the filter, for `subscribe`.
    topic: str
    qos: int = 0
    retain: bool = False


def _is_brokers(question: Question) -> bool:
    """Whether the broker alone publishes there, whoever allows it to others. A bridge may say whether it is there, and
    so may any client under its own id: bridges of 5.0 do not say that they are bridges."""
    _, action, topic, *_ = question
    return action == "publish" and topic[:5] == "$SYS/" and topic != bridge_state(question.client.client_id)


class Access:
    """Asks the hook chain, and caches its decisions on the `Channel`, so that the hot path is one dict lookup."""

    __slots__ = ("_cache_size", "_default", "_hooks", "_metrics", "_read_as_subscribe", "_timeout", "few")

    def __init__(self, hooks: Hooks, metrics: Metrics, config: Config) -> None:
        self._hooks = hooks
        self._metrics = metrics
        #: For checking earlier decisions again: this leaves room for new questions.
        self.few = trio.CapacityLimiter(config.acl.asked_again)
        self.configure(config)

    def configure(self, config: Config) -> None:
        self._default = config.acl.no_match == "allow"
        self._cache_size = config.acl.cache_size
        self._timeout = config.acl.timeout
        self.few.total_tokens = config.acl.asked_again
        # a subscription that should have been refused was granted, so each message is checked instead
        self._read_as_subscribe = config.mqtt.subscribe_denied == "grant"

    def decide(self, question: Question) -> bool | None:
        """Decide at once: a decision that needs a service is a denial. None is a denial, too: nobody could decide, and
        the next answer may be another one."""
        if _is_brokers(question):
            return False
        if question.client.superuser:
            return True
        return self._conclude(question, self._hooks.decide(CLIENT_CHECK_ACL, *question), self._default)

    async def ask(self, question: Question) -> bool | None:
        """As `decide`, but wait for services, with a timeout."""
        if _is_brokers(question):
            return False
        if question.client.superuser:
            return True
        return self._conclude(question, await self._asked(question), self._default)

    async def _asked(self, question: Question) -> Allow | Deny | None:
        client, action, topic, *_ = question
        decision: Allow | Deny | None = CRASHED
        with trio.move_on_after(self._timeout) as limit:
            decision = await self._hooks.decide_async(CLIENT_CHECK_ACL, *question)
        if limit.cancelled_caught:
            text = "no decision within %g s about %s to %s"
            _logger.error(text, self._timeout, action, quoted(topic), extra=client.log_fields)
        return decision

    async def refusal(self, question: Question) -> Deny | None:
        """Why the client may not do that, for the answer to it; None if it may. Waits for services."""
        if question.client.superuser:
            return None
        decision = await self._asked(question) if self.waits else self._hooks.decide(CLIENT_CHECK_ACL, *question)
        if self._conclude(question, decision, self._default):
            return None
        return Deny(Reason.NOT_AUTHORIZED, decision.text if isinstance(decision, Deny) else "")

    def still(self, question: Question) -> bool | None:
        """May the client keep a subscription? None if that cannot be decided now."""
        if question.client.superuser:
            return True
        return self._conclude_again(question, self._hooks.decide(CLIENT_CHECK_ACL, *question))

    async def ask_still(self, question: Question, *, patient: bool) -> bool | None:
        """As `still`, but wait for services if `patient`."""
        if question.client.superuser:
            return True
        with trio.move_on_after(self._timeout if patient else 0):
            decision = await self._hooks.decide_async(CLIENT_CHECK_ACL, *question)
            return self._conclude_again(question, decision)
        return None

    def _conclude_again(self, question: Question, decision: Allow | Deny | None) -> bool | None:
        if isinstance(decision, Deny) and decision.reason in _CANNOT_SAY:
            return None
        return bool(self._conclude(question, decision, self._default))

    @property
    def waits(self) -> bool:
        """A service takes part in decisions: use `ask` where a client can wait."""
        return self._hooks.is_async(CLIENT_CHECK_ACL)

    def _decide_delivery(self, question: Question, default: bool) -> bool | None:
        """A delivery does not wait: services have decided about the subscription."""
        if question.client.superuser:
            return True
        return self._conclude(question, self._hooks.decide_without_async(CLIENT_CHECK_ACL, *question), default)

    def _conclude(self, question: Question, decision: Allow | Deny | None, default: bool) -> bool | None:
        allowed = decision is ALLOW if decision is not None else default
        if allowed:
            self._metrics.authorization_allow += 1
        else:
            self._metrics.authorization_deny += 1
        if self._hooks.client_acl_decided:
            self._hooks.notify(CLIENT_ACL_DECIDED, *question, allowed)
        if isinstance(decision, Deny) and (decision is CRASHED or decision.reason in _CANNOT_SAY):
            return None
        return allowed

    def may_publish(self, channel: Channel, topic: str, qos: int, retain: bool) -> bool:
        """A rule may depend on QoS and retain, so each combination is remembered apart."""
        allowed = self.decide(Question(channel.client, "publish", topic, qos, retain))
        self._remember(channel.may_publish[qos << 1 | retain], topic, allowed)
        return bool(allowed)

    async def ask_publish(self, channel: Channel, packet: Message) -> None:
        """As `may_publish`, but wait for services. The answer is for this packet, and is remembered for others."""
        topic, qos, retain = packet.topic, packet.qos, packet.retain
        question = Question(channel.client, "publish", topic, qos, retain)
        rules = -1
        allowed: bool | None = False
        while rules != channel.rules:  # the decision is based on old rules: ask again
            rules = channel.rules
            allowed = await self.ask(question)
        self._remember(channel.may_publish[qos << 1 | retain], topic, allowed)
        channel.answer = packet, bool(allowed)

    def may_read(self, channel: Channel, topic: str) -> bool:
        """Whether the client may receive messages of this topic, by any subscription."""
        revoked = channel.revoked
        allowed = (revoked is None or not revoked.concerns(topic)) and self._decide_delivery(
            Question(channel.client, "receive", topic), True
        )
        if allowed and self._read_as_subscribe:
            allowed = self._decide_delivery(Question(channel.client, "subscribe", topic), self._default or self.waits)
        self._remember(channel.may_read, topic, allowed)
        return bool(allowed)

    def may_read_retained(self, client: ClientInfo, topic: str) -> bool:
        """A client gets a retained message only if it may subscribe to exactly this topic."""
        return bool(self._decide_delivery(Question(client, "subscribe", topic), self._default or self.waits))

    def may_still_publish(self, client: ClientInfo, message: Message) -> bool:
        """Whether the publisher of a retained message may still publish it. The broker may always publish its own."""
        question = Question(client, "publish", message.topic, message.qos, message.retain)
        return not message.publisher or bool(self._decide_delivery(question, self._default or self.waits))

    def _remember(self, decisions: dict[str, bool], topic: str, allowed: bool | None) -> None:
        if allowed is None or len(topic) > MAX_REMEMBERED:
            return
        if len(decisions) >= self._cache_size:
            decisions.clear()
        if self._cache_size:
            decisions[topic] = allowed
