"""Checks payloads before messages are routed. A message whose payload is not text or JSON, or does not fit a JSON
Schema, is refused, dropped, or passed and reported."""

import json
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from trunkline.config.units import OptionalPath, Size, Text, TopicFilter
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import DROP, Deny, Withhold
from trunkline.hooks.priorities import VALIDATION
from trunkline.mqtt.errors import ProtocolError
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.topics import matches, validate_name
from trunkline.plugins import Context, PluginError, Table, hook, setting
from trunkline.plugins.shipped.extras import NeedsExtra
from trunkline.plugins.shipped.json_schemas import JsonSchema, SchemaProblem


class PayloadRule(Table):
    """Requirements for payloads of some topics."""

    topics: tuple[TopicFilter, ...] = setting(..., "Topics that the rule is for.", min_length=1)
    content: Literal["any", "utf8", "json"] = setting("any", "What payloads must be: UTF-8 text, JSON, or anything.")
    schema_file: OptionalPath = setting(None, "File of a JSON Schema that payloads must fit, as JSON.")
    max_size: Size = setting(256 * 1024, "Longest payload. Longer ones fail without further checks.", "bytes")
    on_failure: Literal["refuse", "drop", "pass"] = setting(
        "refuse",
        "What happens to other payloads: they are refused (0x99 for 5.0), dropped silently, or counted and passed.",
    )


class ValidationSettings(NeedsExtra):
    """Rules that payloads must fulfil."""

    extra: ClassVar[str] = "schema"
    libraries: ClassVar[tuple[str, ...]] = ("jsonschema", "referencing")
    imports: ClassVar[tuple[str, ...]] = ("jsonschema.validators", "referencing.jsonschema")

    rules: tuple[PayloadRule, ...] = setting((), "Every rule whose topics match must be fulfilled.")
    report_topic: Text = setting("", "Topic at which each failure is published, as JSON. Empty: none.")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.report_topic:
            try:
                validate_name(self.report_topic)
            except ProtocolError as error:
                raise ValueError(f"report_topic: {error}") from None
        if self.enabled:
            for place, rule in enumerate(self.rules):
                try:
                    if rule.schema_file is not None and rule.schema_file.is_file():
                        JsonSchema(rule.schema_file)
                except SchemaProblem as problem:
                    raise ValueError(f"rules[{place}].schema_file: {problem}") from None
        return self


@dataclass(frozen=True, slots=True)
class _Ready:
    """A rule with its schema."""

    rule: PayloadRule
    number: int
    schema: JsonSchema | None

    def concerns(self, topic: str) -> bool:
        return any(matches(filter, topic) for filter in self.rule.topics)

    def problem(self, payload: bytes) -> str:
        if len(payload) > self.rule.max_size:
            return f"the payload is longer than {self.rule.max_size} bytes"
        if self.rule.content == "any" and self.schema is None:
            return ""
        try:
            text = payload.decode()
        except UnicodeDecodeError as error:
            return f"the payload is not UTF-8 text, from byte {error.start} on"
        if self.rule.content == "utf8" and self.schema is None:
            return ""
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except RecursionError:
            return "the payload is nested too deeply"
        except ValueError as error:
            place = f" at line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
            return f"the payload is not JSON{place}"
        return "" if self.schema is None else self.schema.problem(value)


class Validation:
    def __init__(self, context: Context[ValidationSettings]) -> None:
        settings = context.settings
        settings.check_installed()
        self._context = context
        self._report_topic = settings.report_topic
        self._rules = [_ready(rule, number) for number, rule in enumerate(settings.rules)]
        self._checked = context.counter("checked", "Payloads checked, once for each rule.")
        self._counters = {
            "refuse": context.counter("refused", "Messages refused."),
            "drop": context.counter("dropped", "Messages dropped."),
            "pass": context.counter("passed", "Messages that broke a rule and were passed."),
        }

    @hook("message.publish", priority=VALIDATION)
    def check(self, client: ClientInfo, message: Message) -> Deny | Withhold | None:
        if message.retain and not message.payload:
            return None  # it deletes a retained message
        for ready in self._rules:
            if not ready.concerns(message.topic):
                continue
            self._checked.add()
            problem = ready.problem(message.payload)
            if not problem:
                continue
            action = ready.rule.on_failure
            self._counters[action].add()
            if self._report_topic:
                self._report(client, message, ready, problem)
            if action == "refuse":
                return Deny(Reason.PAYLOAD_FORMAT_INVALID, problem)
            if action == "drop":
                return DROP
        return None

    def _report(self, client: ClientInfo, message: Message, ready: _Ready, problem: str) -> None:
        content = {
            "topic": message.topic,
            "clientid": client.client_id,
            "rule": ready.number,
            "action": ready.rule.on_failure,
            "problem": problem,
            "timestamp": int(self._context.wall * 1000),
        }
        self._context.publish(self._report_topic, json.dumps(content, ensure_ascii=False).encode())


def _ready(rule: PayloadRule, number: int) -> _Ready:
    try:
        return _Ready(rule, number, None if rule.schema_file is None else JsonSchema(rule.schema_file))
    except SchemaProblem as problem:
        raise PluginError([str(problem)]) from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
