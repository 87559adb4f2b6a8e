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

import re
import tomllib
from collections.abc import Iterable, Iterator
from ipaddress import ip_network
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


def parse_rules(text: str, source: str = "rules file") -> list[Rule]:
    """The rules in a file's text; `source` is its name, for the errors.

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
        lines = list(_header_lines(text))
        # rules may be written in other TOML forms, without headers to search for
        headed = len(lines) == len(entries)
        places = (
            [f"{source}:{line}" for line in lines]
            if headed
            else [f"{source}: rule {n + 1}" for n in range(len(entries))]
        )
        rules = read_rules(zip(places, entries, strict=True), problems)
    if problems:
        raise AclError(problems)
    return rules


def read_rules(tables: Iterable[tuple[str, object]], problems: list[str]) -> list[Rule]:
    """The rules in tables, each of which comes with its place. Mistakes are added to `problems`."""
    rules = list[Rule]()
    for place, table in tables:
        if isinstance(table, dict):
            rules += _read(place, cast("dict[str, object]", table), problems)
        else:
            problems.append(f"{place}: found {table!r:.200}; accepted: a [[rule]] table")
    return rules


def _read(place: str, table: dict[str, object], problems: list[str]) -> Iterator[Rule]:
    """The rule of a table; None if there are mistakes, which are added to `problems`."""
    count = len(problems)
    if "retain" in table and table.get("action") != "publish":
        problems.append(f'{place}: retain: only a rule with action = "publish" can have it')
    if "user" in table and "anonymous" in table:
        problems.append(f"{place}: anonymous: a rule has either user or anonymous, not both")
    try:
        rule = _RuleTable.model_validate(table)
    except ValidationError as error:
        problems += [f"{place}: {problem}" for problem in problems_in(error, _RuleTable)]
        return
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


def problems_in(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    """A problem with a rule: the key, its value, and the accepted values according to the model."""
    for detail in error.errors():
        keys = ", ".join(model.model_fields)
        if not detail["loc"]:
            yield f"found {detail['input']!r:.200}; accepted: a table of {keys}"
            continue
        key = str(detail["loc"][0])
        if detail["type"] == "extra_forbidden":
            yield f"{key}: unknown; accepted: {keys}"
            continue
        words = str(detail.get("ctx", {}).get("error", ""))
        found = "nothing" if detail["type"] == "missing" else f"{detail['input']!r:.200}"
        yield f"{key}: found {found}{words and f' ({words})'}; accepted: {model.model_fields[key].description}"


def _header_lines(text: str) -> Iterator[int]:
    line, at = 1, 0
    for header in _HEADER.finditer(text):
        line += text.count("\n", at, header.start())
        at = header.start()
        yield line
