"""Access rules that come with a login: in a token, or in the answer of an HTTP service. Their form is EMQX's.

The newer form is a list of rules, of which the first that matches decides; if none does, other rules decide:

    [{"permission": "allow", "action": "publish", "topic": "t/${clientid}", "qos": [0, 1], "retain": false}]

The older one has three lists of allowed topics; nothing else is allowed: {"pub": ["a"], "sub": ["b/#"], "all": ["c"]}.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator

from trunkline.hooks.acl import Acl, Permit, Rule, RuleAction, Topic
from trunkline.hooks.acl_file import Flag, Level, Many, checked_topic, problems_in
from trunkline.hooks.decisions import ALLOW, Allow, Deny

if TYPE_CHECKING:
    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.points import Action

#: Rules that one login may bring.
MAX_RULES: Final = 1000
_DENIED: Final = Deny(text="denied by the access rules of its login")


class RulesError(Exception):
    """These are not valid access rules. The text says what is wrong with them."""


class LoginRules:
    """The rules of one client's login."""

    __slots__ = ("_if_allowed", "_if_denied", "_only")

    def __init__(self, value: object, client: "ClientInfo") -> None:
        """The names of `client` are substituted in the topics now, so they must be known.

        Raises:
            RulesError: the rules are invalid, so nothing can be decided by them.
        """
        rules, self._only = _read(value)
        # without a matching rule the default applies, so if both defaults give the same answer a rule has decided
        self._if_allowed = Acl(rules, no_match="allow").compile_for(client)
        self._if_denied = Acl(rules, no_match="deny").compile_for(client)

    def decide(self, action: "Action", topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        """None: no rule applies. Deliveries are not checked: the subscription was."""
        if action == "receive":
            return None
        allowed = self._if_denied.check(action, topic, qos, retain)
        if allowed:
            return ALLOW
        return _DENIED if self._only or not self._if_allowed.check(action, topic, qos, retain) else None


def _topic(entry: object) -> Topic:
    if isinstance(entry, str):
        text = entry.replace("${clientid}", "%c").replace("${username}", "%u")
        if "${" in text:
            # EMQX has more of them; taken literally they would be other topics
            raise ValueError("a placeholder that is not known")
        return checked_topic(text.removeprefix("eq "), text.startswith("eq "))
    raise ValueError


_Topic = Annotated[Topic, PlainValidator(_topic)]
_Topics = Annotated[tuple[_Topic, ...], Field(max_length=MAX_RULES)]


class _LoginRule(BaseModel):
    """One rule. Ignoring an unknown condition would make the rule wider than intended."""

    model_config = ConfigDict(extra="forbid")

    permission: Permit = Field(description='"allow" or "deny"')
    action: Literal["publish", "subscribe", "all"] = Field("all", description='"publish", "subscribe" or "all"')
    topics: Many[_Topic] = Field(description="a topic filter or a list of them")
    qos: Many[Level] | None = Field(None, description="0, 1, 2 or a list of them")
    retain: Flag | None = Field(None, description="true or false")

    @model_validator(mode="before")
    @classmethod
    def _one_topic(cls, value: Any) -> Any:
        if isinstance(value, dict) and "topic" in value:
            return {"topics" if key == "topic" else key: each for key, each in cast("dict[str, Any]", value).items()}
        return cast("Any", value)

    @property
    def rules(self) -> list[Rule]:
        rules = [Rule(self.permission, "subscribe", topics=self.topics, qos=self.qos)]
        if self.action != "subscribe":  # only messages are retained
            rules.append(Rule(self.permission, "publish", topics=self.topics, qos=self.qos, retain=self.retain))
        return rules[self.action == "publish" :]


class _AllowedTopics(BaseModel):
    """The older form."""

    model_config = ConfigDict(extra="forbid")

    pub: _Topics = Field((), description=f"a list of topics, no more than {MAX_RULES}")
    sub: _Topics = Field((), description=f"a list of topics, no more than {MAX_RULES}")
    all: _Topics = Field((), description=f"a list of topics, no more than {MAX_RULES}")

    @property
    def rules(self) -> list[Rule]:
        lists: list[tuple[RuleAction, tuple[Topic, ...]]] = [
            ("publish", self.pub),
            ("subscribe", self.sub),
            ("all", self.all),
        ]
        return [Rule("allow", action, topics=topics) for action, topics in lists if topics]


def _read(value: object) -> tuple[list[Rule], bool]:
    """The rules, and whether nothing else is allowed."""
    model: type[_LoginRule | _AllowedTopics] = _LoginRule if isinstance(value, list) else _AllowedTopics
    entries = cast("list[object]", value) if isinstance(value, list) else [value]
    if len(entries) > MAX_RULES:
        raise RulesError(f"{len(entries)} access rules, more than {MAX_RULES}")
    try:
        rules = [rule for entry in entries for rule in model.model_validate(entry).rules]
    except ValidationError as error:
        raise RulesError(f"access rules: {next(problems_in(error, model))[1]}") from None
    return rules, model is _AllowedTopics
