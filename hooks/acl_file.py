"""Access rules as they stand in a TOML file.

[[rule]]
permit = "allow"                 # or "deny"
user = "ada"                     # user, client, address, listener: one or a list; what is left out is not asked
anonymous = true                 # in place of user: clients without a user name
address = ["10.0.0.0/8", "loopback"]
action = "publish"               # subscribe, receive, all (publish and subscribe; so it is when left out)
topics = ["home/%u/#", { eq = "#" }]
qos = [0, 1]
retain = false                   # for publish only
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_network
from typing import Any, Final, TypeVar, cast, get_args

from trunkline.hooks.acl import LOOPBACK, Permit, Rule, RuleAction, Topic
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.topics import validate_filter

T = TypeVar("T")

_KEYS: Final = ("permit", "user", "anonymous", "client", "address", "listener", "action", "topics", "qos", "retain")
#: Where a rule begins in the file.
_HEADER: Final = re.compile(r"^[ \t]*\[\[[ \t]*rule[ \t]*\]\]", re.MULTILINE)

#: What counts when no file is given: this machine may read what the broker says of itself and everything at once,
#: others may not; everything else is allowed to everybody.
DEFAULT_RULES: Final = """\
[[rule]]
permit = "allow"
address = "loopback"
action = "subscribe"
topics = ["$SYS/#", "#"]

[[rule]]
permit = "deny"
action = "subscribe"
topics = ["$SYS/#", { eq = "#" }, { eq = "+/#" }]

[[rule]]
permit = "deny"
action = "publish"
topics = ["$SYS/#"]

[[rule]]
permit = "allow"
"""


class AclError(Exception):
    """The rules cannot be used. `problems` has everything that is wrong with them, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class _NotAccepted(Exception):
    """A value is not one of those that its key takes."""


def parse_rules(text: str, source: str = "rules file") -> list[Rule]:
    """The rules in a file's text; `source` is its name, for the errors.

    Raises:
        AclError: with all problems at once.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers may be too long, tables too deep
        raise AclError([f"{source}: not TOML: {error}"]) from None
    problems = [
        f"{source}: {key}: unknown; a rules file holds [[rule]] tables only" for key in document if key != "rule"
    ]
    tables = document.get("rule", [])
    rules = list[Rule]()
    if not isinstance(tables, list):
        problems.append(f"{source}: rule: found one table; write [[rule]], with two brackets, for each rule")
    else:
        entries = cast("list[object]", tables)
        lines = list(_header_lines(text))
        for number, table in enumerate(entries, 1):
            # rules may be written in other ways, which have no headers to be found by
            place = f"{source}:{lines[number - 1]}" if len(lines) == len(entries) else f"{source}: rule {number}"
            if isinstance(table, dict):
                rules.append(_RuleReader(place, cast("dict[str, Any]", table), problems).read())
            else:
                problems.append(f"{place}: found {table!r}; accepted: a [[rule]] table")
    if problems:
        raise AclError(problems)
    return rules


def _header_lines(text: str) -> Iterator[int]:
    line, at = 1, 0
    for header in _HEADER.finditer(text):
        line += text.count("\n", at, header.start())
        at = header.start()
        yield line


def default_rules() -> list[Rule]:
    return parse_rules(DEFAULT_RULES)


def serialise_rules(rules: Iterable[Rule]) -> str:
    """The text of a file with these rules; `parse_rules` gives them back."""
    return "\n".join(_table(rule) for rule in rules)


class _RuleReader:
    """Reads one table and notes every mistake in it. What is wrong is read as if it were not there."""

    def __init__(self, place: str, table: Mapping[str, Any], problems: list[str]) -> None:
        self._place = place
        self._table = table
        self._problems = problems

    def read(self) -> Rule:
        for key in self._table:
            if key not in _KEYS:
                self._problems.append(f"{self._place}: {key}: unknown; accepted: {', '.join(_KEYS)}")
        if "permit" not in self._table:
            self._wrong("permit", "nothing", '"allow" or "deny"')
        action: RuleAction = (
            self._one("action", _choice(RuleAction), '"publish", "subscribe", "receive" or "all"') or "all"
        )
        if "retain" in self._table and action != "publish":
            self._problems.append(f'{self._place}: retain: only a rule with action = "publish" can ask for it')
        if "user" in self._table and "anonymous" in self._table:
            self._problems.append(f"{self._place}: anonymous: a rule names users or has this, not both")
        return Rule(
            permit=self._one("permit", _choice(Permit), '"allow" or "deny"') or "deny",
            action=action,
            users=self._many("user", _name, "a user name or a list of them"),
            anonymous=self._one("anonymous", _flag, "true or false"),
            clients=self._many("client", _name, "a client id or a list of them"),
            addresses=self._many("address", _network, '"10.0.0.0/8", "::1", "loopback", or a list of such'),
            listeners=self._many("listener", _name, "a listener's name or a list of them"),
            topics=self._many("topics", _topic, 'a list of topic filters and { eq = "…" }', listed=True),
            qos=self._many("qos", _qos, "0, 1, 2 or a list of them"),
            retain=self._one("retain", _flag, "true or false"),
        )

    def _one(self, key: str, read: Callable[[object], T], accepted: str) -> T | None:
        if key not in self._table:
            return None
        try:
            return read(self._table[key])
        except (_NotAccepted, ValueError) as error:
            self._wrong(key, _show(self._table[key], error), accepted)
            return None

    def _many(
        self, key: str, read: Callable[[object], T], accepted: str, *, listed: bool = False
    ) -> tuple[T, ...] | None:
        if key not in self._table:
            return None
        found: object = self._table[key]
        if not isinstance(found, list):
            if listed:
                self._wrong(key, repr(found), accepted)
                return None
            found = [found]
        items = cast("list[object]", found)
        if not items:
            self._wrong(key, "an empty list, so that the rule would never match", accepted)
        values = list[T]()
        for item in items:
            try:
                values.append(read(item))
            except (_NotAccepted, ValueError) as error:
                self._wrong(key, _show(item, error), accepted)
        return tuple(values)

    def _wrong(self, key: str, found: str, accepted: str) -> None:
        self._problems.append(f"{self._place}: {key}: found {found}; accepted: {accepted}")


def _show(found: object, error: Exception) -> str:
    return f"{found!r} ({error})" if str(error) else repr(found)


def _choice(type_: object) -> Callable[[object], Any]:
    names = get_args(type_)

    def read(found: object) -> object:
        if found not in names:
            raise _NotAccepted
        return found

    return read


def _name(found: object) -> str:
    if not isinstance(found, str):
        raise _NotAccepted
    return found


def _flag(found: object) -> bool:
    if not isinstance(found, bool):
        raise _NotAccepted
    return found


def _qos(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found not in {0, 1, 2}:
        raise _NotAccepted
    return found


def _network(found: object) -> Any:
    if not isinstance(found, str):
        raise _NotAccepted
    return found if found == LOOPBACK else ip_network(found)


def _topic(found: object) -> Topic:
    literal = False
    if isinstance(found, dict):
        table = cast("dict[str, object]", found)
        if table.keys() != {"eq"}:
            raise _NotAccepted
        found, literal = table["eq"], True
    if not isinstance(found, str):
        raise _NotAccepted
    if found.startswith("$share/"):
        raise _NotAccepted("shared subscriptions are judged by the filter behind $share/group/: write that")
    try:
        validate_filter(found)
    except ProtocolError as error:
        raise _NotAccepted(error) from None
    return Topic(found, literal)


def _table(rule: Rule) -> str:
    lines = ["[[rule]]", f'permit = "{rule.permit}"']
    for key, names in (("user", rule.users), ("client", rule.clients), ("listener", rule.listeners)):
        if names is not None:
            lines.append(f"{key} = [{', '.join(map(_quote, names))}]")
    if rule.anonymous is not None:
        lines.append(f"anonymous = {str(rule.anonymous).lower()}")
    if rule.addresses is not None:
        lines.append(f"address = [{', '.join(_quote(str(network)) for network in rule.addresses)}]")
    lines.append(f'action = "{rule.action}"')
    if rule.topics is not None:
        topics = (f"{{ eq = {_quote(topic.text)} }}" if topic.literal else _quote(topic.text) for topic in rule.topics)
        lines.append(f"topics = [{', '.join(topics)}]")
    if rule.qos is not None:
        lines.append(f"qos = [{', '.join(map(str, rule.qos))}]")
    if rule.retain is not None:
        lines.append(f"retain = {str(rule.retain).lower()}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
