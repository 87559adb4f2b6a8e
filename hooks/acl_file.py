"""Access rules in a TOML file.

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

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_network
from itertools import zip_longest
from operator import methodcaller
from typing import Annotated, Final, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, Strict, ValidationError

from trunkline.hooks.acl import LOOPBACK, Network, Permit, Rule, RuleAction, Topic
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.topics import validate_filter

T = TypeVar("T")

#: A line of an `acl_file` of Mosquitto's.
_MOSQUITTO: Final = re.compile(r"^(user|topic|pattern)[ \t]+[^\s=]", re.MULTILINE)

#: The line that begins a rule in the file.
_HEADER: Final = re.compile(r"^[ \t]*\[\[[ \t]*rule[ \t]*\]\]", re.MULTILINE)

#: The line of a key of a rule.
_KEY: Final = re.compile(r"""^[ \t]*["']?([\w-]+)["']?[ \t]*[=.]""", re.MULTILINE)

#: The rules when no file is given: only this machine may subscribe to `$SYS` and to everything at once; everything else
#: is allowed to everybody.
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
permit = "allow"
"""


class AclError(Exception):
    """The rules cannot be used. `problems` has all problems, one line each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def _filled(value: object) -> object:
    if value == []:
        raise ValueError("the rule would never match")
    return value


def _listed(value: object) -> object:
    return _filled(cast("list[object]", value)) if isinstance(value, list) else [value]


def _network(found: object) -> Network | str:
    if isinstance(found, str):
        return found if found == LOOPBACK else ip_network(found)
    raise ValueError


def _topic(found: object) -> Topic:
    text, literal = found, isinstance(found, dict)
    if literal:
        table = cast("dict[str, object]", found)
        text = table["eq"] if table.keys() == {"eq"} else None
    if isinstance(text, str):
        if text.startswith("$share/"):
            raise ValueError("shared subscriptions are judged by the filter behind $share/group/: write that")
        if "${" in text and not literal:  # taken literally it would be another topic
            raise ValueError("placeholders are %c and %u")
        return checked_topic(text, literal)
    raise ValueError


def checked_topic(text: str, literal: bool) -> Topic:
    """
    Raises:
        ValueError: this is not a topic filter.
    """
    try:
        validate_filter(text)
    except ProtocolError as error:
        raise ValueError(str(error)) from None
    return Topic(text, literal)


#: One value or a list of values.
Many = Annotated[tuple[T, ...], BeforeValidator(_listed)]
Level = Annotated[int, Strict(), Field(ge=0, le=2)]
Flag = Annotated[bool, Strict()]


class _RuleTable(BaseModel):
    """One table; each description says what is accepted."""

    model_config = ConfigDict(extra="forbid")

    permit: Permit = Field(description='"allow" or "deny"')
    action: RuleAction = Field("all", description='"publish", "subscribe", "receive" or "all"')
    user: Many[str] | None = Field(None, description="a user name or a list of them")
    anonymous: Flag | None = Field(None, description="true or false")
    client: Many[str] | None = Field(None, description="a client id or a list of them")
    address: Many[Annotated[Network, PlainValidator(_network)]] | None = Field(
        None, description='"10.0.0.0/8", "::1", "loopback", or a list of such'
    )
    listener: Many[str] | None = Field(None, description="a listener's name or a list of them")
    topics: Annotated[tuple[Annotated[Topic, PlainValidator(_topic)], ...], BeforeValidator(_filled)] | None = Field(
        None, description='a list of topic filters and { eq = "…" }'
    )
    qos: Many[Level] | None = Field(None, description="0, 1, 2 or a list of them")
    retain: Flag | None = Field(None, description="true or false")


@dataclass
class RulePlace:
    """Where a rule is written: in a file's lines, or where the source says."""

    source: str
    #: The line of its header. None: the source says it.
    line: int | None = None
    text: str = ""

    def of(self, key: str) -> str:
        return self.source if self.line is None else f"{self.source}:{self._lines.get(key, self.line)}"

    @cached_property
    def _lines(self) -> dict[str, int]:
        lines = dict[str, int]()
        line, at = self.line or 0, 0
        for match in _KEY.finditer(self.text):
            line += self.text.count("\n", at, match.start())
            at = match.start()
            lines.setdefault(match[1], line)
        return lines


def parse_rules(text: str, source: str = "rules file", listeners: Collection[str] | None = None) -> list[Rule]:
    """The rules in a file's text; `source` is its name, for the errors, and `listeners` are those that there are.

    Raises:
        AclError: with all problems at once.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers may be too long, tables too deep
        page = "; these are Mosquitto's rules: docs/coming-from-mosquitto.md says what they are here"
        hint = page if _MOSQUITTO.search(text) else ""
        raise AclError([f"{source}: not TOML: {error}{hint}"]) from None
    problems = [
        f"{source}: {key}: unknown; a rules file holds [[rule]] tables only" for key in document if key != "rule"
    ]
    tables = document.get("rule", [])
    rules = list[Rule]()
    if not isinstance(tables, list):
        problems.append(f"{source}: rule: found one table; write [[rule]], with two brackets, for each rule")
    else:
        entries = cast("list[object]", tables)
        places = list(_places(text, source))
        if len(places) != len(entries):  # they are written in other TOML forms, without headers to search for
            places = [RulePlace(f"{source}: rule {n + 1}") for n in range(len(entries))]
        rules = read_rules(zip(places, entries, strict=True), problems, listeners)
    if problems:
        raise AclError(problems)
    return rules


def read_rules(
    tables: Iterable[tuple[RulePlace, object]], problems: list[str], listeners: Collection[str] | None = None
) -> list[Rule]:
    """The rules in tables, each of which comes with its place. Mistakes are added to `problems`."""
    rules = list[Rule]()
    for place, table in tables:
        if isinstance(table, dict):
            rules += _read(place, cast("dict[str, object]", table), problems, listeners)
        else:
            problems.append(f"{place.of('')}: found {_shown(table)}; accepted: a [[rule]] table")
    return rules


def _read(
    place: RulePlace, table: dict[str, object], problems: list[str], listeners: Collection[str] | None
) -> Iterator[Rule]:
    """The rule of a table; None if there are mistakes, which are added to `problems`."""
    count = len(problems)
    if "retain" in table and table.get("action") != "publish":
        problems.append(f'{place.of("retain")}: retain: only a rule with action = "publish" can have it')
    if "user" in table and "anonymous" in table:
        problems.append(f"{place.of('anonymous')}: anonymous: a rule has either user or anonymous, not both")
    try:
        rule = _RuleTable.model_validate(table)
    except ValidationError as error:
        problems += [f"{place.of(key)}: {problem}" for key, problem in problems_in(error, _RuleTable)]
        return
    if listeners is not None:
        problems += [
            f"{place.of('listener')}: listener: no listener is called {_shown(name)}{_nearest(name, listeners)}"
            for name in rule.listener or ()
            if name not in listeners
        ]
    if len(problems) == count:
        yield Rule(
            rule.permit,
            rule.action,
            rule.user,
            rule.anonymous,
            rule.client,
            rule.address,
            rule.listener,
            rule.topics,
            rule.qos,
            rule.retain,
        )


def problems_in(error: ValidationError, model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """What is wrong with a rule, by key: the key, its value, and the accepted values according to the model."""
    for detail in error.errors():
        keys = ", ".join(model.model_fields)
        if not detail["loc"]:
            yield "", f"found {_shown(detail['input'])}; accepted: a table of {keys}"
            continue
        key = str(detail["loc"][0])
        if detail["type"] == "extra_forbidden":
            yield key, f"{key}: unknown{_nearest(key, model.model_fields) or f'; accepted: {keys}'}"
            continue
        words = str(detail.get("ctx", {}).get("error", ""))
        found = "nothing" if detail["type"] == "missing" else _shown(detail["input"])
        accepted = model.model_fields[key].description
        yield key, f"{key}: found {found}{words and f' ({words})'}; accepted: {accepted}"


def _nearest(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches  # only needed to explain a mistake

    found = get_close_matches(name, names, 1)
    return f"; did you mean {found[0]}?" if found else ""


def _shown(value: object) -> str:
    """As the file has it, dates and times too."""
    text = json.dumps(value, ensure_ascii=False, default=methodcaller("isoformat"))
    return text if len(text) <= 200 else f"{text[:200]}…"


def _places(text: str, source: str) -> Iterator[RulePlace]:
    line, at = 1, 0
    headers = list(_HEADER.finditer(text))
    for header, after in zip_longest(headers, headers[1:]):
        line += text.count("\n", at, header.start())
        at = header.start()
        yield RulePlace(source, line, text[at : after.start() if after else len(text)])
