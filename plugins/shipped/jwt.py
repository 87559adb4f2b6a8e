"""Clients log in with a JSON Web Token: who signed it is known by key, and what it says is what they are.

The token is the password (or the user name). A 5.0 client may also bring it as the data of the authentication method
`JWT`, and then bring a newer one before the old one ends.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self, cast

from pydantic import SecretStr, model_validator

from trunkline.broker.units import Duration, Flag, OptionalPath, Secret, Size, Text
from trunkline.hooks.client import ClientInfo
from trunkline.hooks.decisions import ALLOW, Allow, Deny
from trunkline.hooks.exchange import Exchange, Success
from trunkline.hooks.points import Action
from trunkline.mqtt.reasons import Reason
from trunkline.plugins import Context, PluginError, hook, setting
from trunkline.plugins.shipped.acl_rules import RulesError
from trunkline.plugins.shipped.http_client import HttpClient, HttpSettings, Url
from trunkline.plugins.shipped.jwks import PublishedKeys
from trunkline.plugins.shipped.jwt_claims import BadClaim, Claims
from trunkline.plugins.shipped.jwt_keys import ALGORITHMS, KeyProblem, KeySet, from_jwks, from_pem, from_secret
from trunkline.plugins.shipped.login import Logins, text_attributes

_NO_KEYS: Final = Deny(Reason.SERVER_UNAVAILABLE, "the server has no keys to verify tokens with")
_SOURCES: Final = ("secret", "public_key_file", "jwks_file", "jwks_url")


class JwtSettings(HttpSettings):
    """Logins with JSON Web Tokens. One of `secret`, `public_key_file`, `jwks_file` and `jwks_url` says how they are
    verified; what is said of HTTP is for the last of them."""

    extra: ClassVar[str] = "jwt"
    libraries: ClassVar[tuple[str, ...]] = ("jwt", "cryptography", "httpx")
    guards: ClassVar[tuple[str, ...]] = ("client.authenticate", "client.check_acl")

    token_in: Literal["password", "username"] = setting("password", "Where a client puts its token.")
    secret: Secret = setting(SecretStr(""), "The secret that HS256, HS384 or HS512 tokens are signed with.")
    secret_base64: Flag = setting(False, "Whether `secret` is written in Base64.")
    public_key_file: OptionalPath = setting(None, "PEM file of a public key, or of a certificate.")
    jwks_file: OptionalPath = setting(None, "File of a JSON Web Key Set.")
    jwks_url: Url = setting("", "Where a JSON Web Key Set is published.")
    refresh_interval: Duration = setting(300.0, "Time between two fetches of `jwks_url`.", "seconds", gt=0)
    refetch_floor: Duration = setting(
        10.0, "Shortest time between two fetches, when a token names a key that is not known.", "seconds", gt=0
    )
    algorithms: tuple[Text, ...] = setting(
        (), "Algorithms that are taken. Those that the key is for, when it is empty."
    )
    max_token_size: Size = setting(16 * 1024, "Longest token that is looked at.", "bytes", ge=100)
    leeway: Duration = setting(0.0, "How far the clocks of issuer and broker may be apart.", "seconds")
    issuer: Text = setting("", "What `iss` must say. Empty: anything.")
    audience: Text = setting("", "What `aud` must say, or hold. Empty: anything.")
    required_claims: tuple[Text, ...] = setting(("exp",), "Claims that a token must have.")
    verify_claims: Mapping[Text, Text] = setting(
        {}, "Claims and what they must say: `%c` is the client id, `%u` the user name that the client gave."
    )
    username_claim: Text = setting("sub", "The claim that says who the client is; its user name from then on.")
    superuser_claim: Text = setting("is_superuser", "The claim that makes a superuser, when it is `true`. Empty: none.")
    attributes_claim: Text = setting("client_attrs", "The claim with attributes for hooks to read. Empty: none.")
    acl_claim: Text = setting("acl", "The claim with access rules. Empty: none.")
    disconnect_after_expire: Flag = setting(True, "Whether a client is disconnected when its token ends.")

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        unknown = [name for name in self.algorithms if name not in ALGORITHMS]
        if unknown:
            raise ValueError(f"algorithms: {unknown[0]!r} is unknown; there are {', '.join(ALGORITHMS)}")
        given = [
            name
            for name, value in zip(
                _SOURCES,
                (self.secret.get_secret_value(), self.public_key_file, self.jwks_file, self.jwks_url),
                strict=True,
            )
            if value
        ]
        if self.enabled and len(given) != 1:
            have = f"has {' and '.join(given)}" if given else "has no key"
            raise ValueError(f"{have}: set one of {', '.join(_SOURCES)}")
        if self.enabled and not self.jwks_url:
            self._check_keys()
        return self

    def _check_keys(self) -> None:
        file = self.public_key_file or self.jwks_file
        if file is not None and not file.is_file():
            return  # that is told of all files alike
        try:
            self.keys()
        except KeyProblem as error:
            raise ValueError(str(error)) from None

    def keys(self) -> KeySet:
        """Those that are given as they are.

        Raises:
            KeyProblem: they cannot be used.
        """
        if self.public_key_file is not None:
            found, where = self._read(self.public_key_file, from_pem), f"{self.public_key_file}: "
        elif self.jwks_file is not None:
            found, where = self._read(self.jwks_file, from_jwks), f"{self.jwks_file}: "
        else:
            found, where = from_secret(self.secret.get_secret_value(), base64_encoded=self.secret_base64), ""
        try:
            return found.limited(self.algorithms) if self.algorithms else found
        except KeyProblem as error:
            raise KeyProblem(f"{where}algorithms: {error}") from None

    @staticmethod
    def _read(file: Any, read: Any) -> KeySet:
        try:
            return cast("KeySet", read(file.read_bytes()))
        except OSError as error:
            raise KeyProblem(f"{file}: {error.strerror or error}") from None
        except KeyProblem as error:
            raise KeyProblem(f"{file} {error}") from None


@dataclass(frozen=True, slots=True)
class _Token:
    claims: dict[str, Any]
    expires_at: float | None
    #: Who the client is; None where the token does not say.
    username: str | None


class Jwt:
    """The plugin."""

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
        self._accepted = context.counter("accepted", "Tokens that let a client in.")
        self._refused = context.counter("refused", "Tokens that did not.")
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

    # Who may connect

    @hook("client.authenticate")
    async def authenticate(self, client: ClientInfo, password: bytes | None) -> Allow | Deny | None:
        by_name = self._context.settings.token_in == "username"
        data = (client.username or "").encode() if by_name else password
        if not data or _header(data) is None:
            return None  # this is no token: a password, perhaps, which others know
        if by_name:
            client.username = None  # it is no name, and not for others to see
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
            return Deny(text="the token is of somebody else")
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
            return Deny(Reason.BAD_USER_NAME_OR_PASSWORD, "this is no token")
        algorithm, kid = header
        payload = self._payload(data, algorithm, kid)
        if payload is None and self._published is not None and not self._knows(algorithm, kid):
            await self._published.newer()
            if self._published.keys is None:
                return _NO_KEYS
            payload = self._payload(data, algorithm, kid)
        if payload is None:
            return Deny(Reason.BAD_USER_NAME_OR_PASSWORD, "the token is signed with no key that is known")
        try:
            claims = _object(payload)
            expires_at = self._claims.check(claims, client, self._context.wall)
        except BadClaim as error:
            return Deny(Reason.BAD_USER_NAME_OR_PASSWORD, str(error))
        return _Token(claims, expires_at, self._name(claims, client))

    def _name(self, claims: Mapping[str, Any], client: ClientInfo) -> str | None:
        """A name that the client gave itself proves nothing, unless the token says it too."""
        name = claims.get(self._context.settings.username_claim)
        if isinstance(name, str) and name:
            return name
        return client.username if self._claims.prove_username else None

    def _current(self) -> KeySet | None:
        return self._keys if self._published is None else self._published.keys

    def _knows(self, algorithm: str, kid: str | None) -> bool:
        """Is the key there that the token names? Then a bad signature is bad, and no reason to fetch anything."""
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

    # While they are connected

    @hook("client.connected")
    def connected(self, client: ClientInfo) -> None:
        self._logins.watch(client)

    @hook("client.disconnected")
    def disconnected(self, client: ClientInfo, reason: Reason, text: str) -> None:
        self._logins.forget(client)

    @hook("client.check_acl")
    def check_acl(self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        return self._logins.decide(client, action, topic, qos, retain)


def _header(data: bytes) -> tuple[str, str | None] | None:
    """Algorithm and key that a token says it is signed with; None when this is no token. Whether all of the header is in
    order is seen when the signature is verified."""
    parts = data.split(b".")
    if len(parts) != 3:
        return None
    try:
        header = json.loads(base64.urlsafe_b64decode(parts[0] + b"=" * (-len(parts[0]) % 4)))
    except (ValueError, RecursionError):
        return None
    algorithm = cast("dict[str, object]", header).get("alg") if isinstance(header, dict) else None
    if not isinstance(algorithm, str):
        return None
    kid = cast("dict[str, object]", header).get("kid")
    return algorithm, kid if isinstance(kid, str) else None


def _object(payload: bytes) -> dict[str, Any]:
    """
    Raises:
        BadClaim: the token says nothing that can be understood.
    """
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        raise BadClaim("the token holds no JSON") from None
    if not isinstance(claims, dict):
        raise BadClaim("the token holds no object")
    return cast("dict[str, Any]", claims)
