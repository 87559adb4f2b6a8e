"""Lets an HTTP service decide which clients may connect, and what they may publish and subscribe to.

Only the client concerned waits for the answer. Without a valid answer it is denied: if the service is slow, down, or
its answer is not understood.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pydantic import model_validator

from trunkline.config.units import Duration, Text, Whole
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import ALLOW, Allow, Deny
from trunkline.hooks.points import Action
from trunkline.hooks.priorities import LOGIN_RULES
from trunkline.mqtt.reasons import Reason
from trunkline.plugins import Context, Counter, hook, setting
from trunkline.plugins.shipped.acl_rules import RulesError
from trunkline.plugins.shipped.circuit import Circuit
from trunkline.plugins.shipped.http_answers import Remembered, Verdict, read_verdict
from trunkline.plugins.shipped.http_client import HttpClient, HttpFailure, HttpSettings
from trunkline.plugins.shipped.http_template import (
    CLIENT_WORDS,
    Prepared,
    RequestTemplate,
    Unfit,
    Value,
    client_values,
)
from trunkline.plugins.shipped.login import Logins

_DOWN: Final = Deny(Reason.SERVER_UNAVAILABLE, "the server cannot decide now")
_BUSY: Final = Deny(Reason.SERVER_BUSY, "the server has too many open decisions")
_REFUSED: Final = Deny(Reason.BAD_USER_NAME_OR_PASSWORD)
_FORBIDDEN: Final = Deny(text="the access service denies it")


class Authenticate(RequestTemplate):
    """Authentication of clients."""

    body: Mapping[Text, Text] = setting(
        {"clientid": "${clientid}", "username": "${username}", "password": "${password}"}, "The body's entries."
    )
    cache_ttl: Duration = setting(0.0, "How long an answer is remembered. 0 asks each time.", "seconds")

    @classmethod
    def words(cls) -> tuple[str, ...]:
        return (*CLIENT_WORDS, "password")


class Authorize(RequestTemplate):
    """Authorization to publish and subscribe."""

    body: Mapping[Text, Text] = setting(
        {
            "clientid": "${clientid}",
            "username": "${username}",
            "peerhost": "${peerhost}",
            "action": "${action}",
            "topic": "${topic}",
            "qos": "${qos}",
            "retain": "${retain}",
        },
        "The body's entries.",
    )
    cache_ttl: Duration = setting(60.0, "How long an answer is valid.", "seconds", ge=1)

    @classmethod
    def words(cls) -> tuple[str, ...]:
        return (*CLIENT_WORDS, "action", "topic", "qos", "retain")


class HttpAuthSettings(HttpSettings):
    """An HTTP service that decides who may connect, publish and subscribe."""

    guards: ClassVar[tuple[str, ...]] = ("client.authenticate", "client.check_acl")

    authenticate: Authenticate = setting(Authenticate(), "The request that asks whether a client may connect.")
    authorize: Authorize = setting(Authorize(), "The request that asks whether it may publish or subscribe.")
    cache_size: Whole = setting(10_000, "Answers of each kind that are remembered.", "answers", ge=0)
    max_waiting: Whole = setting(
        1000, "Questions that may be open at the same time; further questions are denied.", "questions", ge=1
    )
    max_failures: Whole = setting(
        5, "Failures in a row after which the service gets no requests for a while.", "failures", ge=1
    )
    pause: Duration = setting(5.0, "How long it gets no requests before it is tried again.", "seconds", gt=0)

    @property
    def authenticates(self) -> bool:
        return self.enabled and bool(self.authenticate.url)

    @model_validator(mode="after")
    def _something_to_ask(self) -> Self:
        if self.enabled and not (self.authenticate.url or self.authorize.url):
            raise ValueError("has no URL: set authenticate.url, authorize.url or both")
        return self


@dataclass(frozen=True, slots=True)
class _Question:
    template: RequestTemplate
    remembered: Remembered
    asked: Counter
    denied: Counter


class HttpAuth:
    def __init__(self, context: Context[HttpAuthSettings]) -> None:
        settings = context.settings
        self._context = context
        self._client = HttpClient(settings)
        self._circuit = Circuit(settings.max_failures, settings.pause)
        self._waiting = 0
        self._logins = Logins(context, "the login has ended", LOGIN_RULES)  # they run before the request
        self._login_question = self._question("authenticate", settings.authenticate, settings.authenticate.cache_ttl)
        self._acl_question = self._question("authorize", settings.authorize, settings.authorize.cache_ttl)
        self._hits = context.counter("cache_hits", "Questions answered from memory.")
        self._failures = context.counter("failures", "Questions that the service gave no usable answer to.")
        self._unasked = context.counter("unasked", "Questions denied without asking: service down, or too many open.")
        context.gauge("waiting", "Questions that the service has not answered yet.", lambda: self._waiting)
        #: When the broker's cached decisions about a client expire: the client, the time, the timer.
        self._decided = dict[str, tuple[ClientInfo, float, Callable[[], None]]]()

    def _question(self, name: str, template: RequestTemplate, time_to_live: float) -> _Question:
        return _Question(
            template,
            Remembered(time_to_live, self._context.settings.cache_size),
            self._context.counter(f"{name}.asked", "Questions sent to the service."),
            self._context.counter(f"{name}.denied", "Questions that it answered with a denial."),
        )

    def start(self) -> None:
        """Without a URL there is no callback: an async one makes every client wait for its turn."""
        if self._login_question.template.url:
            self._context.hooks.add("client.authenticate", self.authenticate)
        if self._acl_question.template.url:
            self._context.hooks.add("client.check_acl", self.check_acl)

    async def stop(self) -> None:
        self._context.clear_alarm("service")
        await self._client.aclose()

    # Authentication

    async def authenticate(self, client: ClientInfo, password: bytes | None) -> Allow | Deny | None:
        values = client_values(client)
        try:
            values["password"] = None if password is None else password.decode()
        except UnicodeDecodeError:
            return _REFUSED
        verdict, _ = await self._ask(self._login_question, values)
        if isinstance(verdict, Deny):
            return verdict
        if verdict.result == "deny":
            return _REFUSED
        return None if verdict.result == "ignore" else self._accept(client, verdict)

    def _accept(self, client: ClientInfo, verdict: Verdict) -> Allow | Deny:
        if verdict.expires_at is not None and verdict.expires_at <= self._context.wall:
            return _REFUSED
        try:
            self._logins.accept(client, verdict.attributes, verdict.acl, verdict.expires_at)
        except RulesError as error:
            self._context.logger.error("the service's answer cannot be used: %s", error)
            return _DOWN
        client.superuser = client.superuser or verdict.superuser
        return ALLOW

    @hook("client.disconnected")
    def disconnected(self, client: ClientInfo, reason: Reason, text: str) -> None:
        decided = self._decided.get(client.client_id)
        if decided is not None and decided[0] is client:
            decided[2]()
            del self._decided[client.client_id]

    # Authorization

    async def check_acl(
        self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool
    ) -> Allow | Deny | None:
        values = client_values(client) | {"action": action, "topic": topic, "qos": qos, "retain": retain}
        verdict, until = await self._ask(self._acl_question, values)
        # the broker caches the answer for the connection's lifetime
        self._forget_at(client, until)
        if isinstance(verdict, Deny):
            return verdict
        if verdict.result == "ignore":
            return None
        return ALLOW if verdict.result == "allow" else _FORBIDDEN

    def _forget_at(self, client: ClientInfo, until: float) -> None:
        decided = self._decided.get(client.client_id)
        if decided is not None:
            if decided[0] is client and decided[1] <= until:
                return
            decided[2]()
        cancel = self._context.after(until - self._context.now, self._forget, client.client_id)
        self._decided[client.client_id] = client, until, cancel

    def _forget(self, client_id: str) -> None:
        self._decided.pop(client_id, None)
        self._context.forget_decisions(client_id, subscriptions=False)

    # Asking

    async def _ask(self, question: _Question, values: Mapping[str, Value]) -> tuple[Verdict | Deny, float]:
        """The verdict, or the denial in its place, and the time until which it is valid."""
        now, settings = self._context.now, self._context.settings
        retry_at = now + settings.pause
        try:
            request = question.template.fill(values)
        except Unfit as error:
            self._context.logger.info("a client is denied: %s", error)
            return _REFUSED, retry_at
        if (known := question.remembered.find(request, now)) is not None:
            self._hits.add()
            return known
        if self._waiting >= settings.max_waiting:
            self._unasked.add()
            return _BUSY, retry_at
        if not self._circuit.may_ask(now):
            self._unasked.add()
            return _DOWN, retry_at
        question.asked.add()
        try:
            verdict = await self._send(request)
        except HttpFailure as failure:
            self._failed(failure)
            return _DOWN, self._context.now + settings.pause
        if self._circuit.succeeded():
            self._context.logger.info("the service answers again")
            self._context.clear_alarm("service")
        if verdict.result == "deny":
            question.denied.add()
        return verdict, question.remembered.keep(request, verdict, self._context.now)

    async def _send(self, request: Prepared) -> Verdict:
        headers = {"Content-Type": request.content_type} if request.content is not None else {}
        self._waiting += 1
        try:
            return read_verdict(await self._client.request(request.method, request.url, request.content, headers))
        finally:
            self._waiting -= 1

    def _failed(self, failure: HttpFailure) -> None:
        self._failures.add()
        if self._circuit.failed(self._context.now):
            self._context.logger.error("the service gets no requests for a while: %s", failure)
            self._context.raise_alarm("service", f"the access service does not answer: {failure}")
