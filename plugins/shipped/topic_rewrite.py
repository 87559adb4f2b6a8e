"""topic-rewrite: replaces the topics that clients use, by rules with regular expressions.

As in EMQX, the last rule whose source matches applies, and if its pattern does not match, the topic is unchanged.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

from pydantic import field_validator, model_validator

from trunkline.config.units import Flag, Text, TopicFilter, Whole
from trunkline.hooks import ClientInfo, Deny
from trunkline.hooks.priorities import REWRITE
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.explanations import worth_logging
from trunkline.mqtt.message import Message
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.properties import Properties
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import SHARE_PREFIX, matches, parse_shared, validate_filter, validate_name
from trunkline.plugins import Context, Settings, Table, hook, setting
from trunkline.plugins.shipped.placeholders import value_of

_WORD: Final = re.compile(r"\$(?P<group>[0-9]+)|%(?P<placeholder>[cuhp])")
_EXCLUSIVE: Final = "$exclusive/"


class RewriteRule(Table):
    """One rule."""

    action: Literal["publish", "subscribe", "all"] = setting(
        "all", ("The packets that the rule is for; `subscribe` is SUBSCRIBE and UNSUBSCRIBE.")
    )
    source: TopicFilter = setting(..., "Topics that the rule is for.")
    pattern: Text = setting(..., "A regular expression of Python's, looked for in the topic.")
    target: Text = setting(
        ..., "The new topic: `$1` is the pattern's first group, `%c` the client id, `%u` the user name."
    )

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        groups = re.compile(self.pattern).groups
        for number in [int(word["group"]) for word in _WORD.finditer(self.target) if word["group"]]:
            if not 0 < number <= groups:
                raise ValueError(f"the target has ${number}, but the pattern {self.pattern!r} has {groups} groups")
        if self.source.startswith((SHARE_PREFIX, _EXCLUSIVE)):
            raise ValueError(f"the source {self.source!r} never matches: rules see the topic behind this prefix")
        try:
            (_plain_filter if self.action == "subscribe" else validate_name)(_WORD.sub("x", self.target))
        except ProtocolError as error:
            raise ValueError(f"the target {self.target!r} does not make a valid topic: {error}") from None
        return self


class RewriteSettings(Settings):
    """Rules that rewrite topics and filters."""

    rules: tuple[RewriteRule, ...] = setting((), "The rules. The last one whose source matches applies.")
    check_access: Flag = setting(True, "Whether access rules are also checked for the new topic of a message.")
    max_topic_length: Whole = setting(1024, "Longest topic that a rule accepts and makes.", "bytes", ge=1, le=65_535)


@dataclass(frozen=True, slots=True)
class _Compiled:
    source: str
    pattern: re.Pattern[str]
    target: str


class TopicRewrite:
    def __init__(self, context: Context[RewriteSettings]) -> None:
        self._context = context
        self._max_length = context.settings.max_topic_length
        compiled = [
            (rule.action, _Compiled(rule.source, re.compile(rule.pattern), rule.target))
            for rule in reversed(context.settings.rules)
        ]
        self._publish = [rule for action, rule in compiled if action != "subscribe"]
        self._subscribe = [rule for action, rule in compiled if action != "publish"]
        self._rewritten = context.counter("rewritten", "Topics and topic filters that were rewritten.")
        self._refused = context.counter("refused", "Topics and topic filters whose rule made an invalid one.")

    @hook("message.publish", priority=REWRITE)
    def publish(self, client: ClientInfo, message: Message) -> Message | Deny | None:
        topic = self._rewrite(self._publish, client, message.topic, validate_name, Reason.TOPIC_NAME_INVALID)
        if topic is None or isinstance(topic, Deny):
            return topic
        if self._context.settings.check_access and not self._context.may(
            client, "publish", topic, message.qos, message.retain
        ):
            return Deny(Reason.NOT_AUTHORIZED)
        return replace(message, topic=topic)

    @hook("client.subscribe", priority=REWRITE)
    def subscribe(
        self, client: ClientInfo, request: SubscriptionRequest, properties: Properties
    ) -> SubscriptionRequest | Deny | None:
        """The broker checks the access rules for the new topic."""
        filter = self._filter(client, request.filter)
        return replace(request, filter=filter) if isinstance(filter, str) else filter

    @hook("client.unsubscribe", priority=REWRITE)
    def unsubscribe(self, client: ClientInfo, filter: str, properties: Properties) -> str | Deny | None:
        return self._filter(client, filter)

    def _filter(self, client: ClientInfo, filter: str) -> str | Deny | None:
        """Rules see the filter behind the prefix of a shared or exclusive subscription."""
        inner = filter
        if (shared := parse_shared(filter)) is not None:
            inner = shared[1]
        elif filter.startswith(_EXCLUSIVE):
            inner = filter[len(_EXCLUSIVE) :]
        made = self._rewrite(self._subscribe, client, inner, _plain_filter, Reason.TOPIC_FILTER_INVALID)
        return filter[: len(filter) - len(inner)] + made if isinstance(made, str) else made

    def _rewrite(
        self, rules: list[_Compiled], client: ClientInfo, topic: str, validate: Callable[[str], None], reason: Reason
    ) -> str | Deny | None:
        """The new topic; None if it is unchanged."""
        rule = next((rule for rule in rules if matches(rule.source, topic)), None)
        if rule is None:
            return None
        try:
            self._check_length(topic)
            found = rule.pattern.search(topic)
            if found is None:
                return None
            made = _made(rule.target, found, client)
            self._check_length(made)
            validate(made)
            if made.startswith("$SYS/"):
                raise ProtocolError("$SYS is the broker's own")
        except ProtocolError as error:
            self._refused.add()
            if worth_logging(self._refused.value):
                self._context.logger.warning(
                    "rule for %s: %.200r of the client %r is refused: %.200s (%d so far)",
                    rule.source, topic, client.client_id, error, self._refused.value,
                )  # fmt: skip
            return Deny(reason, "a rewriting rule makes an invalid topic of it")
        self._rewritten.add()
        return made

    def _check_length(self, topic: str) -> None:
        if len(topic.encode()) > self._max_length:
            raise ProtocolError(f"it is longer than {self._max_length} bytes")


def _made(target: str, found: re.Match[str], client: ClientInfo) -> str:
    """The target with its placeholders replaced in one pass: a client id may look like a group.

    Raises:
        ProtocolError: a value of the client is not allowed there.
    """

    def word(place: re.Match[str]) -> str:
        if place["group"]:
            return found[int(place["group"])] or ""
        value = value_of(place["placeholder"], client)
        if value is None or (place.start() == 0 and value[0] == "$"):
            raise ProtocolError(f"a topic cannot contain the value of {place[0]}")
        return value

    return _WORD.sub(word, target)


def _plain_filter(filter: str) -> None:
    """Raises ProtocolError if it is not a filter, or a shared one."""
    validate_filter(filter)
    if filter.startswith(SHARE_PREFIX):
        raise ProtocolError("a rule cannot make a shared subscription")
