"""Checks and reads a token's claims. Its signature has been verified before."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.hooks.client import ClientInfo

_PLACEHOLDER: Final = re.compile("%[cu]")
#: Times from here on cannot be in seconds.
_LATEST: Final = 1e12


class BadClaim(Exception):
    """The token is not valid for this client, or not now. The text may be sent to the client, which knows its token."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The checks for every token."""

    #: Seconds that the clocks of the issuer and of the broker may differ by.
    leeway: float
    #: Empty: any.
    issuer: str
    audience: str
    #: Claims that must be present, with any value.
    required: tuple[str, ...]
    #: Claims and their required values; `%c` is the client id, `%u` the user name.
    expected: Mapping[str, str]

    @property
    def prove_username(self) -> bool:
        """Whether the token confirms the user name that the client sent."""
        return "%u" in self.expected.values()

    def check(self, claims: Mapping[str, Any], client: ClientInfo, now: float) -> float | None:
        """The time at which the token expires, in seconds since the epoch like `now`; None if it does not.

        Raises:
            BadClaim: it is not valid.
        """
        for name in self.required:
            if name not in claims:
                raise BadClaim(f"the token has no {name}")
        expires_at = _time(claims, "exp")
        if expires_at is not None and now >= expires_at + self.leeway:
            raise BadClaim("the token has expired")
        for name in ("nbf", "iat"):
            begins_at = _time(claims, name)
            if begins_at is not None and begins_at > now + self.leeway:
                raise BadClaim("the token is not valid yet")
        if self.issuer and claims.get("iss") != self.issuer:
            raise BadClaim("the token has another issuer")
        if self.audience and not _says(claims.get("aud"), self.audience):
            raise BadClaim("the token is for another audience")
        words = {"%c": client.client_id, "%u": client.username or ""}
        for name, text in self.expected.items():
            # a client without a user name must not match a token without the claim
            if any(not words[word] for word in _PLACEHOLDER.findall(text)):
                raise BadClaim(f"the token's {name} cannot be compared: the client did not send the value")
            if not _says(claims.get(name), _PLACEHOLDER.sub(lambda found: words[found[0]], text)):
                raise BadClaim(f"the token's {name} belongs to another client")
        return None if expires_at is None else expires_at + self.leeway


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value: object = claims[name]
    # neither text nor milliseconds
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
        raise BadClaim(f"the token's {name} is not a time in seconds")
    return float(value)


def _says(value: object, text: str) -> bool:
    """A claim that is a list has each of its entries as a value."""
    return text in value if isinstance(value, list) else value == text
