"""The settings of the plugin `jwt`: where its keys are, and the claims that tokens must have."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self, cast

from pydantic import SecretStr, model_validator

from trunkline.config.units import Duration, Flag, OptionalPath, Secret, Size, Text
from trunkline.plugins import setting
from trunkline.plugins.shipped.http_client import HttpSettings, Url
from trunkline.plugins.shipped.jwt_keys import ALGORITHMS, KeyProblem, KeySet, from_jwks, from_pem, from_secret

_SOURCES: Final = ("secret", "public_key_file", "jwks_file", "jwks_url")


class JwtSettings(HttpSettings):
    """Logins with JSON Web Tokens. One of `secret`, `public_key_file`, `jwks_file` and `jwks_url` says how they are
    verified; the keys about HTTP belong to `jwks_url`."""

    extra: ClassVar[str] = "jwt"
    libraries: ClassVar[tuple[str, ...]] = ("jwt", "cryptography", "httpx")
    imports: ClassVar[tuple[str, ...]] = ("jwt", "httpx")
    guards: ClassVar[tuple[str, ...]] = ("client.authenticate", "client.check_acl")

    token_in: Literal["password", "username"] = setting("password", "Where a client puts its token.")
    secret: Secret = setting(SecretStr(""), "The secret that HS256, HS384 or HS512 tokens are signed with.")
    secret_base64: Flag = setting(False, "Whether `secret` is written in Base64.")
    public_key_file: OptionalPath = setting(None, "PEM file of a public key, or of a certificate.")
    jwks_file: OptionalPath = setting(None, "File of a JSON Web Key Set.")
    jwks_url: Url = setting("", "Where a JSON Web Key Set is published.")
    refresh_interval: Duration = setting(300.0, "Time between two fetches of `jwks_url`.", "seconds", gt=0)
    refetch_floor: Duration = setting(
        10.0, "Shortest time between two fetches, when a token names an unknown key.", "seconds", gt=0
    )
    algorithms: tuple[Text, ...] = setting((), "Algorithms that are accepted. When it is empty, those of the key.")
    max_token_size: Size = setting(16 * 1024, "Longest token that is accepted.", "bytes", ge=100)
    leeway: Duration = setting(0.0, "How far the clocks of issuer and broker may be apart.", "seconds")
    issuer: Text = setting("", "Required value of `iss`. Empty: any.")
    audience: Text = setting("", "Required value of `aud`, or one of its values. Empty: any.")
    required_claims: tuple[Text, ...] = setting(("exp",), "Claims that a token must have.")
    verify_claims: Mapping[Text, Text] = setting(
        {}, "Claims and their required values: `%c` is the client id, `%u` the user name that the client sent."
    )
    username_claim: Text = setting("sub", "The claim with the client's user name.")
    superuser_claim: Text = setting("is_superuser", "The claim that makes a superuser if it is `true`. Empty: none.")
    attributes_claim: Text = setting("client_attrs", "The claim with attributes for hooks to read. Empty: none.")
    acl_claim: Text = setting("acl", "The claim with access rules. Empty: none.")
    disconnect_after_expire: Flag = setting(True, "Whether a client is disconnected when its token expires.")

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
            return  # missing files are reported for all settings alike
        try:
            self.keys()
        except KeyProblem as error:
            raise ValueError(str(error)) from None

    def keys(self) -> KeySet:
        """The keys that the settings contain or name as files. Raises: KeyProblem: they cannot be used."""
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
