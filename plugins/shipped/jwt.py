"""Clients log in with a JSON Web Token: its signature is verified with a known key, and its claims identify the client.

The token is the password (or the user name). A 5.0 client may also bring it as the data of the authentication method
`JWT`, and then bring a newer one before the old one ends.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, cast

from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import ALLOW, Allow, Deny
from trunkline.hooks.exchange import Exchange, Success
from trunkline.mqtt.reasons import Reason
from trunkline.plugins import Context, PluginError, hook
from trunkline.plugins.shipped.acl_rules import RulesError
from trunkline.plugins.shipped.http_client import HttpClient
from trunkline.plugins.shipped.jwks import PublishedKeys
from trunkline.plugins.shipped.jwt_claims import BadClaim, Claims
from trunkline.plugins.shipped.jwt_keys import KeyProblem, KeySet
from trunkline.plugins.shipped.jwt_settings import JwtSettings
from trunkline.plugins.shipped.login import Logins, text_attributes, unambiguous

_NO_KEYS: Final = Deny(Reason.SERVER_UNAVAILABLE, "the server has no keys to verify tokens with")


@dataclass(frozen=True, slots=True)
class _Token:
    claims: dict[str, Any]
    expires_at: float | None
    #: The client's user name; None if the token does not have it.
    username: str | None


class Jwt:
    """Clients log in with a JSON Web Token: its signature is verified with a known key, and its claims identify the
    client."""

    #: The authentication method of 5.0.
    METHOD: ClassVar[str] = "JWT"

    def __init__(self, context: Context[JwtSettings]) -> None:
        settings = context.settings
        settings.check_installed()
        from jwt import PyJWS

        self._jws = PyJWS(options={"verify_signature": True, "enforce_minimum_key_length": True})
        self._context = context
        self._claims = Claims(
            settings.leeway, settings.issuer, settings.audience, settings.required_claims, settings.verify_claims
        )
        self._logins = Logins(context, "the token has expired")
        self._accepted = context.counter("accepted", "Tokens that were accepted.")
        self._refused = context.counter("refused", "Tokens that were refused.")
        self._client: HttpClient | None = None
        self._published: PublishedKeys | None = None
        self._keys: KeySet | None = None
        if settings.jwks_url:
            self._client = HttpClient(settings)
            self._published = PublishedKeys(
                context,
                self._client,
                settings.jwks_url,
                settings.algorithms,
                refresh=settings.refresh_interval,
                floor=settings.refetch_floor,
            )
        else:
            try:
                self._keys = settings.keys()
            except KeyProblem as error:
                raise PluginError([str(error)]) from None

    async def run(self) -> None:
        if self._published is not None:
            await self._published.run()

    async def stop(self) -> None:
        self._context.clear_alarm("jwks")
        if self._client is not None:
            await self._client.aclose()

    # Authentication

    @hook("client.authenticate")
    async def authenticate(self, client: ClientInfo, password: bytes | None) -> Allow | Deny | None:
        by_name = self._context.settings.token_in == "username"
        data = (client.username or "").encode() if by_name else password
        if not data or _header(data) is None:
            return None  # not a token, but perhaps a password that another authenticator knows
        if by_name:
            client.username = None  # other callbacks must not see the token
        return await self._admit(client, data)

    @hook("client.enhanced_authenticate")
    async def authenticate_by_method(self, client: ClientInfo, exchange: Exchange) -> Success | Deny | None:
        if exchange.method != self.METHOD:
            return None
        decision = await self._admit(client, exchange.data, again=exchange.again)
        if isinstance(decision, Deny):
            return decision
        if exchange.again:
            self._logins.watch(client)
            self._context.forget_decisions(client.client_id)
        return Success()

    async def _admit(self, client: ClientInfo, data: bytes, *, again: bool = False) -> Allow | Deny:
        token = await self._verified(client, data)
        if isinstance(token, Deny):
            self._refused.add()
            return token
        if again and token.username != client.username:
            self._refused.add()
            return Deny(text="the token belongs to another client")
        settings, claims = self._context.settings, token.claims
        before = client.username
        client.username = token.username
        try:
            self._logins.accept(
                client,
                text_attributes(claims.get(settings.attributes_claim)),
                claims.get(settings.acl_claim),
                token.expires_at if settings.disconnect_after_expire else None,
            )
        except RulesError as error:
            client.username = before
            self._refused.add()
            return Deny(Reason.BAD_USER_NAME_OR_PASSWORD, str(error))
        client.superuser = bool(settings.superuser_claim) and claims.get(settings.superuser_claim) is True
        self._accepted.add()
        return ALLOW

    async def _verified(self, client: ClientInfo, data: bytes) -> _Token | Deny:
        if len(data) > self._context.settings.max_token_size:
            return Deny(Reason.BAD_USER_NAME_OR_PASSWORD, "the token is too long")
        header = _header(data)
        if header is None:
            return Deny(Reason.BAD_USER_NAME_OR_PASSWORD, "this is not a token")
        algorithm, kid = header
        payload = self._payload(data, algorithm, kid)
        if payload is None and self._published is not None and not self._knows(algorithm, kid):
            await self._published.newer()
            if self._published.keys is None:
                return _NO_KEYS
            payload = self._payload(data, algorithm, kid)
        if payload is None:
            return Deny(Reason.BAD_USER_NAME_OR_PASSWORD, "the token is signed with an unknown key")
        try:
            claims = _object(payload)
            expires_at = self._claims.check(claims, client, self._context.wall)
        except BadClaim as error:
            return Deny(Reason.BAD_USER_NAME_OR_PASSWORD, str(error))
        return _Token(claims, expires_at, self._name(claims, client))

    def _name(self, claims: Mapping[str, Any], client: ClientInfo) -> str | None:
        """The client's own user name is not trusted unless the token has it too."""
        name = claims.get(self._context.settings.username_claim)
        if isinstance(name, str) and name:
            return name
        return client.username if self._claims.prove_username else None

    def _current(self) -> KeySet | None:
        return self._keys if self._published is None else self._published.keys

    def _knows(self, algorithm: str, kid: str | None) -> bool:
        """Whether the token's key is known. Then a bad signature is final, and no reason to fetch keys."""
        keys = self._current()
        return keys is not None and bool(keys.candidates(algorithm, kid))

    def _payload(self, data: bytes, algorithm: str, kid: str | None) -> bytes | None:
        from jwt.exceptions import PyJWTError

        keys = self._current()
        for key in () if keys is None else keys.candidates(algorithm, kid):
            try:
                verified = self._jws.decode_complete(data, key.material, algorithms=[algorithm])
            except (PyJWTError, ValueError, TypeError):
                continue
            return cast("bytes", verified["payload"])
        return None


def _header(data: bytes) -> tuple[str, str | None] | None:
    """The algorithm and key id of a token's header; None if this is not a token. The verification of the signature
    checks the rest of the header."""
    parts = data.split(b".")
    if len(parts) != 3:
        return None
    try:
        header = json.loads(
            base64.urlsafe_b64decode(parts[0] + b"=" * (-len(parts[0]) % 4)), object_pairs_hook=unambiguous
        )
    except (ValueError, RecursionError):
        return None
    algorithm = cast("dict[str, object]", header).get("alg") if isinstance(header, dict) else None
    if not isinstance(algorithm, str):
        return None
    kid = cast("dict[str, object]", header).get("kid")
    return algorithm, kid if isinstance(kid, str) else None


def _object(payload: bytes) -> dict[str, Any]:
    """Raises BadClaim if the claims cannot be read."""
    try:
        claims = json.loads(payload, object_pairs_hook=unambiguous)
    except (ValueError, RecursionError):
        raise BadClaim("the token does not hold JSON, or has a claim twice") from None
    if not isinstance(claims, dict):
        raise BadClaim("the token does not hold a JSON object")
    return cast("dict[str, Any]", claims)
