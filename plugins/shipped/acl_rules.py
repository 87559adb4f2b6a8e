"""Access rules that come with a login: in a token, or in the answer of an HTTP service. Their form is EMQX's.

The newer form is a list of rules, of which the first that matches decides; where none does, others are asked:

    [{"permission": "allow", "action": "publish", "topic": "t/${clientid}", "qos": [0, 1], "retain": false}]

The older one has three lists of what is allowed, and nothing else is: {"pub": ["a"], "sub": ["b/#"], "all": ["c"]}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.hooks.acl import Acl, Rule, RuleAction, Topic
from trunkline.hooks.decisions import ALLOW, Allow, Deny
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.topics import validate_filter

if TYPE_CHECKING:
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Action

#: Rules that one login may bring.
MAX_RULES: Final = 1000
_KEYS: Final = frozenset({"permission", "action", "topic", "topics", "qos", "retain"})
_LISTS: Final[dict[str, RuleAction]] = {"pub": "publish", "sub": "subscribe", "all": "all"}
_DENIED: Final = Deny(text="the access rules of its login deny it")


class RulesError(Exception):
    """These are no access rules. The text says what is wrong with them."""


class LoginRules:
    """The rules of one client's login."""

    __slots__ = ("_if_allowed", "_if_denied", "_only")

    def __init__(self, value: object, client: ClientInfo) -> None:
        """`client` is put into the topics as it is now, so its names must be known.

        Raises:
            RulesError: nothing is decided by these rules, as what they mean is not clear.
        """
        rules, self._only = _read(value)
        # what no rule matches gets the default, so where both defaults give the same answer a rule has decided
        self._if_allowed = Acl(rules, no_match="allow").compile_for(client)
        self._if_denied = Acl(rules, no_match="deny").compile_for(client)

    def decide(self, action: Action, topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        """None: no rule is about this. Deliveries are not looked at: what was subscribed to is delivered."""
        if action == "receive":
            return None
        allowed = self._if_denied.check(action, topic, qos, retain)
        if allowed:
            return ALLOW
        return _DENIED if self._only or not self._if_allowed.check(action, topic, qos, retain) else None


def _read(value: object) -> tuple[list[Rule], bool]:
    """The rules, and whether they are all that is allowed."""
    if isinstance(value, list):
        entries = cast("list[object]", value)
        if len(entries) > MAX_RULES:
            raise RulesError(f"{len(entries)} access rules, more than {MAX_RULES}")
        return [rule for entry in entries for rule in _rules(entry)], False
    if not isinstance(value, dict):
        raise RulesError("access rules are a list, or lists called pub, sub and all")
    lists = cast("dict[str, object]", value)
    if unknown := lists.keys() - _LISTS.keys():
        raise RulesError(f"access rules have a list called {min(unknown)!r}; known are pub, sub and all")
    rules = list[Rule]()
    for name, topics in lists.items():
        found = _topics(topics, name)
        if len(found) > MAX_RULES:
            raise RulesError(f"{len(found)} topics in {name}, more than {MAX_RULES}")
        if found:
            rules.append(Rule("allow", _LISTS[name], topics=tuple(found)))
    return rules, True


def _rules(entry: object) -> list[Rule]:
    if not isinstance(entry, dict):
        raise RulesError("an access rule is no object")
    fields = cast("dict[str, Any]", entry)
    if unknown := fields.keys() - _KEYS:
        # a condition that is not understood would make the rule wider than it was meant
        raise RulesError(f"an access rule has {min(unknown)!r}; known are {', '.join(sorted(_KEYS))}")
    permission, action = fields.get("permission"), fields.get("action", "all")
    if permission not in ("allow", "deny"):
        raise RulesError('an access rule\'s "permission" is neither allow nor deny')
    if action not in ("publish", "subscribe", "all"):
        raise RulesError('an access rule\'s "action" is none of publish, subscribe and all')
    topics = _topics([fields["topic"]] if "topic" in fields else fields.get("topics"), "topic")
    if not topics:
        raise RulesError('an access rule has no "topic"')
    qos, retain = _qos(fields.get("qos")), fields.get("retain")
    if not isinstance(retain, bool | None):
        raise RulesError('an access rule\'s "retain" is neither true nor false')
    actions: list[RuleAction] = ["publish", "subscribe"] if action == "all" else [action]
    # only messages are retained
    return [
        Rule(permission, one, topics=tuple(topics), qos=qos, retain=retain if one == "publish" else None)
        for one in actions
    ]


def _qos(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    levels = cast("list[object]", value) if isinstance(value, list) else [value]
    numbers = tuple(level for level in levels if type(level) is int and 0 <= level <= 2)
    if len(numbers) < len(levels):
        raise RulesError('an access rule\'s "qos" is not 0, 1, 2 or a list of them')
    return numbers


def _topics(value: object, where: str) -> list[Topic]:
    if not isinstance(value, list):
        raise RulesError(f"access rules: {where} is no list of topics")
    return [_topic(entry) for entry in cast("list[object]", value)]


def _topic(entry: object) -> Topic:
    if not isinstance(entry, str):
        raise RulesError("access rules: a topic is no text")
    text = entry.replace("${clientid}", "%c").replace("${username}", "%u")
    literal = text.startswith("eq ")
    if literal:
        text = text[3:]
    try:
        validate_filter(text)
    except ProtocolError as error:
        raise RulesError(f"access rules: {error}") from None
    if "${" in text:
        # EMQX has more of them; taken as they stand they would be other topics
        raise RulesError(f"access rules: {text!r} has a placeholder that is not known")
    return Topic(text, literal)
