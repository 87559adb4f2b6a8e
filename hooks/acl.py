"""Access rules: which clients may publish to, subscribe to and receive from which topics.

Rules are tried in order, and the first that matches decides. A rule matches when all of its parts match: the client,
the action, the topic, and the QoS and the retain flag if it has conditions on them.

How a rule's topic filter is compared:

* with the topic of a message, as MQTT compares them; `#` and `+` do not reach topics that begin with `$`;
* with a filter that is subscribed to, the rule must *cover* it: match every topic that the filter can match. `a/#`
  covers `a/+`, and `a/+` does not cover `a/#`. A shared subscription is judged by the filter behind `$share/group/`;
* a literal (`{eq = "#"}`) is compared as text.

`%c` and `%u` stand for the client id and the user name. A client chooses these, so a value that could change the
meaning of the filter (missing, empty, holding `/`, `+` or `#`, or a `$` in front of the whole topic) is not put
into it. Such an entry of an *allow* rule then covers nothing, and of a *deny* rule everything from that level on.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, Literal, TypeAlias

from trunkline.hooks.client import ClientInfo, read_address

Permit: TypeAlias = Literal["allow", "deny"]
#: `all` is publish and subscribe. `receive` is checked when a message is delivered, against the message's topic; only
#: rules with this action apply, and a message that none of them denies is delivered.
RuleAction: TypeAlias = Literal["publish", "subscribe", "receive", "all"]
Network: TypeAlias = IPv4Network | IPv6Network

#: In place of a network: this machine, and connections without a socket (the in-process broker's).
LOOPBACK: Final = "loopback"
_WILDCARDS: Final = frozenset("+#")
_PLACEHOLDER: Final = re.compile("%[cu]")
_SPECIAL: Final = re.compile("[/+#]")
#: How many different sets of rules are kept compiled for clients to share.
SHARED_SETS: Final = 1024
#: Clients whose rules are remembered. When there are more, the memory is cleared.
REMEMBERED_CLIENTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Topic:
    """One entry of a rule's topics: a topic filter, or with `literal` a text to compare with."""

    text: str
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that is None always matches."""

    permit: Permit
    action: RuleAction = "all"
    users: tuple[str, ...] | None = None
    #: True: only clients without a user name; False: only clients with one.
    anonymous: bool | None = None
    clients: tuple[str, ...] | None = None
    addresses: tuple[Network | Literal["loopback"], ...] | None = None
    #: Names of listeners.
    listeners: tuple[str, ...] | None = None
    topics: tuple[Topic, ...] | None = None
    qos: tuple[int, ...] | None = None
    retain: bool | None = None

    def concerns(self, client: ClientInfo, address: IPv4Address | IPv6Address | None) -> bool:
        if self.users is not None and client.username not in self.users:
            return False
        if self.anonymous is not None and self.anonymous is not (client.username is None):
            return False
        if self.clients is not None and client.client_id not in self.clients:
            return False
        if self.listeners is not None and client.listener not in self.listeners:
            return False
        if self.addresses is None:
            return True
        for network in self.addresses:
            if network == LOOPBACK:
                if client.peer is None or (address is not None and address.is_loopback):
                    return True
            elif address is not None and address.version == network.version and address in network:
                return True
        return False

    @property
    def has_placeholders(self) -> bool:
        return any(_PLACEHOLDER.search(topic.text) for topic in self.topics or ())


#: A rule prepared for one client: its number, allowed, literals, filters (None: every topic), QoS, retain.
_Compiled: TypeAlias = tuple[
    int, bool, frozenset[str], tuple[tuple[str, ...], ...] | None, tuple[int, ...] | None, bool | None
]
#: In place of the number of the rule that decides.
NO_RULE: Final = -1


class ClientAcl:
    """The rules that apply to one client. They do not change, so their decisions may be cached."""

    __slots__ = ("_no_match", "_publish", "_receive", "_subscribe")

    def __init__(self, rules: Sequence[tuple[RuleAction, _Compiled]], *, no_match: bool) -> None:
        self._publish = tuple(rule for action, rule in rules if action in {"publish", "all"})
        self._subscribe = tuple(rule for action, rule in rules if action in {"subscribe", "all"})
        self._receive = tuple(rule for action, rule in rules if action == "receive")
        self._no_match = no_match

    def check(
        self, action: Literal["publish", "subscribe", "receive"], topic: str, qos: int = 0, retain: bool = False
    ) -> bool:
        """Whether the client may perform the action. `topic` is a topic filter when it subscribes."""
        return self.decide(action, topic, qos, retain)[0]

    def decide(
        self, action: Literal["publish", "subscribe", "receive"], topic: str, qos: int = 0, retain: bool = False
    ) -> tuple[bool, int]:
        """As `check`, and the number of the rule that decides, from 0 on."""
        if action == "publish":
            rules, default = self._publish, self._no_match
        elif action == "subscribe":
            rules, default = self._subscribe, self._no_match
            if topic.startswith("$share/"):
                topic = topic[topic.find("/", 7) + 1 :]
        else:
            rules, default = self._receive, True
        levels: list[str] | None = None
        for number, allowed, literals, filters, only_qos, only_retain in rules:
            if only_qos is not None and qos not in only_qos:
                continue
            if only_retain is not None and retain is not only_retain:
                continue
            if filters is None or topic in literals:
                return allowed, number
            if filters:
                if levels is None:
                    levels = topic.split("/")
                for filter in filters:
                    head = filter[0]  # most filters differ there already
                    if (head == levels[0] or head in _WILDCARDS) and covers(filter, levels):
                        return allowed, number
        return default, NO_RULE


class Acl:
    """A list of rules, and the decision when none of them matches."""

    def __init__(self, rules: Iterable[Rule], *, no_match: Permit = "allow") -> None:
        self.rules = tuple(rules)
        self._no_match = no_match == "allow"
        # rules for named users and clients are found by name: there may be thousands of them
        self._general: list[int] = []
        self._by_user: dict[str, list[int]] = {}
        self._by_client: dict[str, list[int]] = {}
        for index, rule in enumerate(self.rules):
            if rule.users is not None:
                for user in set(rule.users):
                    self._by_user.setdefault(user, []).append(index)
            elif rule.clients is not None:
                for client_id in set(rule.clients):
                    self._by_client.setdefault(client_id, []).append(index)
            else:
                self._general.append(index)
        # rules that do not depend on the client are prepared once; None: the rule depends on it
        nobody = ClientInfo("")
        self._compiled = [
            None if rule.has_placeholders else _compile(rule, number, nobody) for number, rule in enumerate(self.rules)
        ]
        self._has_networks = any(rule.addresses is not None for rule in self.rules)
        # the same few rules apply to most clients
        self._shared: dict[tuple[int, ...], ClientAcl] = {}
        self._everything = ClientAcl([], no_match=True)
        # a client asks again and again: by user name, client id, address and listener, on which its rules depend
        self._remembered: dict[tuple[str | None, str, str | None, str], ClientAcl] = {}

    def compile_for(self, client: ClientInfo) -> ClientAcl:
        """The rules that apply to this client, with its names substituted in their topics."""
        if client.superuser:
            return self._everything
        who = (client.username, client.client_id, client.peer and client.peer[0], client.listener)
        compiled = self._remembered.get(who)
        if compiled is None:
            if len(self._remembered) >= REMEMBERED_CLIENTS:
                self._remembered.clear()
            compiled = self._remembered[who] = self._concerning(client)
        return compiled

    def _concerning(self, client: ClientInfo) -> ClientAcl:
        found = [*self._by_user.get(client.username or "", ()), *self._by_client.get(client.client_id, ())]
        candidates = sorted([*self._general, *found]) if found else self._general
        address = read_address(client.peer[0]) if self._has_networks and client.peer is not None else None
        chosen = tuple(index for index in candidates if self.rules[index].concerns(client, address))
        if any(self._compiled[index] is None for index in chosen):
            return self._compile(chosen, client)
        shared = self._shared.get(chosen)
        if shared is None:
            shared = self._compile(chosen, client)
            if len(self._shared) < SHARED_SETS:
                self._shared[chosen] = shared
        return shared

    def _compile(self, chosen: tuple[int, ...], client: ClientInfo) -> ClientAcl:
        rules = list[tuple[RuleAction, _Compiled]]()
        for index in chosen:
            rule = self.rules[index]
            rules.append((rule.action, self._compiled[index] or _compile(rule, index, client)))
        return ClientAcl(rules, no_match=self._no_match)


def covers(rule: Sequence[str], levels: Sequence[str]) -> bool:
    """Whether the rule's filter matches the topic, or every topic that the filter matches; both given in levels."""
    if rule[0] in _WILDCARDS and levels[0].startswith("$"):
        return False
    count = len(levels)
    for position, level in enumerate(rule):
        if level == "#":
            return True
        if position == count:
            return False
        other = levels[position]
        if level == "+":
            if other == "#":
                return False
        elif level != other:
            return False
    return len(rule) == count


def _compile(rule: Rule, number: int, client: ClientInfo) -> _Compiled:
    allowed = rule.permit == "allow"
    if rule.topics is None:
        return number, allowed, frozenset(), None, rule.qos, rule.retain
    literals = set[str]()
    filters = list[tuple[str, ...]]()
    for topic in rule.topics:
        levels = topic.text.split("/")
        literal = topic.literal
        unusable = _fill(levels, client)
        if unusable is not None:
            if allowed:
                continue
            if unusable == 0:
                return number, allowed, frozenset(), None, rule.qos, rule.retain
            levels[unusable:] = ["#"]
            literal = False
        if literal or not ("+" in levels or "#" in levels):
            literals.add("/".join(levels))
        else:
            # the same topics, but only the short form shows that it covers "#"
            filters.append(("#",) if levels == ["+", "#"] else tuple(levels))
    return number, allowed, frozenset(literals), tuple(filters), rule.qos, rule.retain


def _fill(levels: list[str], client: ClientInfo) -> int | None:
    """Substitute the client's names in the levels. Also returns the position of the first level where they must not be
    substituted."""
    values = {"%c": client.client_id, "%u": client.username or ""}
    for position, level in enumerate(levels):
        for placeholder in _PLACEHOLDER.findall(level):
            value = values[placeholder]
            if not value or _SPECIAL.search(value) or (position == 0 and value[0] == "$"):
                return position
        # in one pass: a client id may look like a placeholder itself
        levels[position] = _PLACEHOLDER.sub(lambda match: values[match[0]], level)
    return None
