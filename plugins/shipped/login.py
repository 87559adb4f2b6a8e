"""Additional data of a login: attributes, access rules, and the time at which it ends.

It is kept in the client's attributes, so that it survives a restart of the plugin that accepted the client. A reload
keeps the timers as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from trunkline.mqtt.reasons import Reason
from trunkline.plugins.shipped.acl_rules import LoginRules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trunkline.hooks.client import ClientInfo
    from trunkline.hooks.decisions import Allow, Deny
    from trunkline.hooks.points import Action
    from trunkline.plugins import Context

#: Attributes that one login may bring.
MAX_ATTRIBUTES: Final = 100


@dataclass(frozen=True, slots=True)
class Login:
    rules: LoginRules | None = None
    #: Seconds since the epoch; None for one that does not end.
    expires_at: float | None = None


class Logins:
    """The logins that one plugin has accepted. Its hooks apply their access rules and end their connections."""

    def __init__(self, context: Context[Any], text: str, priority: int = 0) -> None:
        """`text` is sent to a client whose login has ended; `priority` is that of the access rules."""
        self._context = context
        self._key = f"{context.name}.login"
        self._text = text
        self._expired = context.counter("expired", "Clients disconnected because their login had ended.")
        #: The connected clients whose logins end, and the functions that stop their timers.
        self._watched: dict[str, ClientInfo] = context.kept.setdefault("watched", {})
        self._timers = dict[str, "Callable[[], None]"]()
        if context.replaces:
            for client in list(self._watched.values()):
                self.watch(client)
        else:
            self._watched.clear()
        context.hooks.add("client.connected", self.watch)
        context.hooks.add("client.disconnected", self._forget)
        context.hooks.add("client.check_acl", self._decide, priority=priority)

    def accept(
        self,
        client: ClientInfo,
        attributes: Mapping[str, str],
        rules: object,
        expires_at: float | None,
    ) -> None:
        """Keep the data of a client's login. `rules` are in their original form, None if there are none.

        Raises:
            RulesError: the rules are invalid, and nothing was kept.
        """
        compiled = None if rules is None else LoginRules(rules, client)
        client.attributes.update(attributes)
        client.attributes[self._key] = Login(compiled, expires_at)

    def watch(self, client: ClientInfo) -> None:
        """Disconnect this (connected) client when its login ends."""
        self._cancel(client.client_id)
        login = self._login(client)
        if login is not None and login.expires_at is not None:
            left = login.expires_at - self._context.wall
            self._watched[client.client_id] = client
            self._timers[client.client_id] = self._context.after(left, self._end, client)

    def _forget(self, client: ClientInfo, *_: object) -> None:
        """The connection is closed, so the end of its login no longer matters. A new one with the same client id may
        exist already."""
        login = self._login(client)
        if login is not None and login.expires_at is not None:
            client.attributes[self._key] = Login(login.rules)
        if self._watched.get(client.client_id) is client:
            self._cancel(client.client_id)

    def _cancel(self, client_id: str) -> None:
        self._watched.pop(client_id, None)
        if (stop := self._timers.pop(client_id, None)) is not None:
            stop()

    def _decide(self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        """The decision of the login's access rules."""
        login = self._login(client)
        if login is None:
            return None
        if login.expires_at is not None and client.client_id not in self._watched:
            self.watch(client)  # it logged in during an earlier run of the plugin
        return None if login.rules is None else login.rules.decide(action, topic, qos, retain)

    def _login(self, client: ClientInfo) -> Login | None:
        return cast("Login | None", client.attributes.get(self._key))

    def _end(self, client: ClientInfo) -> None:
        login = self._login(client)
        if login is not None and login.expires_at is not None and login.expires_at > self._context.wall:
            self.watch(client)  # another run of the plugin has accepted a newer one
            return
        self._forget(client)
        if self._context.kick(client.client_id, Reason.NOT_AUTHORIZED, self._text):
            self._expired.add()


def unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of a JSON text that says who a client is: of a key that comes twice, another reader may take the other
    value. Raises ValueError if one does."""
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key occurs twice")
    return table


def text_attributes(value: object) -> dict[str, str]:
    """The entries of a table that are text, up to the limit; none if the value is not a table."""
    if not isinstance(value, dict):
        return {}
    table = cast("dict[str, object]", value)
    texts = [(name, text) for name, text in table.items() if isinstance(text, str)]
    return dict(texts[:MAX_ATTRIBUTES])
