"""What a token must say, and what is taken from it. Its signature has been verified before."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trunkline.hooks.client import ClientInfo

_PLACEHOLDER: Final = re.compile("%[cu]")
#: The first time that is not taken for one in seconds.
_LATEST: Final = 1e12


class BadClaim(Exception):
    """The token does not hold for this client, or not now. The client may be told the text: it knows its token."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What every token is checked for."""

    #: Seconds that the clocks of the issuer and of the broker may differ by.
    leeway: float
    #: Empty: any.
    issuer: str
    audience: str
    #: Claims that must be there, whatever they say.
    required: tuple[str, ...]
    #: Claims and what they must say; `%c` is the client id, `%u` the user name.
    expected: Mapping[str, str]

    @property
    def prove_username(self) -> bool:
        """A token that says the user name which the client gave makes it the client's own."""
        return "%u" in self.expected.values()

    def check(self, claims: Mapping[str, Any], client: ClientInfo, now: float) -> float | None:
        """The time at which the token ends, in seconds since the epoch as `now` is; None when it does not.

        Raises:
            BadClaim: it does not hold.
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
            raise BadClaim("the token is of another issuer")
        if self.audience and not _says(claims.get("aud"), self.audience):
            raise BadClaim("the token is for another audience")
        words = {"%c": client.client_id, "%u": client.username or ""}
        for name, text in self.expected.items():
            # a client without a user name must not match a token that says nothing
            if any(not words[word] for word in _PLACEHOLDER.findall(text)):
                raise BadClaim(f"the token's {name} cannot be compared with what the client did not give")
            if not _says(claims.get(name), _PLACEHOLDER.sub(lambda found: words[found[0]], text)):
                raise BadClaim(f"the token's {name} is of somebody else")
        return None if expires_at is None else expires_at + self.leeway


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value: object = claims[name]
    # neither what is not a number nor milliseconds
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
        raise BadClaim(f"the token's {name} is no time in seconds")
    return float(value)


def _says(value: object, text: str) -> bool:
    """A claim that is a list says each of its entries."""
    return text in value if isinstance(value, list) else value == text
