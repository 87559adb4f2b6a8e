"""HTTP for plugins: limited in time, size and connections, and without logging requests.

It never follows a redirect, keeps a cookie, uses a proxy variable of the environment, accepts a compressed answer, or
logs a request. A request may hold a password, and an answer decides whether a client may connect.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Self
from urllib.parse import urlsplit

import trio
from pydantic import BeforeValidator, model_validator

from trunkline import __version__
from trunkline.config.units import Accepts, Duration, Flag, OptionalPath, Secret, Size, Text, Whole
from trunkline.plugins import PluginError, setting
from trunkline.plugins.shipped.extras import NeedsExtra

if TYPE_CHECKING:
    import httpx

#: Characters of a foreign error message that are repeated.
SHOWN: Final = 200


def check_url(value: object) -> str:
    """Raises ValueError if this URL cannot be used."""
    if not isinstance(value, str):
        value = "no text"
    if value == "":
        return ""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise ValueError("not an http or https URL")
    if "@" in parts.netloc:
        raise ValueError("URLs are shown with the settings: put credentials into headers")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("a URL must not have spaces, and characters outside ASCII must be percent-encoded")
    _ = parts.port  # raises ValueError for an invalid port
    return value


#: Empty is none.
Url = Annotated[
    str, BeforeValidator(check_url), Accepts('a URL such as "https://example.com/path", without credentials')
]


class HttpSettings(NeedsExtra):
    """The settings of every plugin that asks an HTTP service."""

    extra: ClassVar[str] = "http"
    libraries: ClassVar[tuple[str, ...]] = ("httpx",)
    imports: ClassVar[tuple[str, ...]] = ("httpx",)

    headers: Mapping[Text, Secret] = setting({}, "Headers of every request, such as `Authorization`.")
    pool_size: Whole = setting(8, "Connections to the service.", "connections", ge=1, le=1000)
    connect_timeout: Duration = setting(5.0, "How long establishing a connection may take.", "seconds", gt=0)
    request_timeout: Duration = setting(
        5.0, "How long a request may take in all, from its wait for a connection to the last byte.", "seconds", gt=0
    )
    max_response_size: Size = setting(64 * 1024, "Longest answer that is accepted.", "bytes", ge=1)
    verify_tls: Flag = setting(True, "Whether the service's certificate is checked.")
    ca_file: OptionalPath = setting(
        None, "PEM file of the authorities that may have signed the certificate. The system's when it is not set."
    )

    @model_validator(mode="after")
    def _sendable(self) -> Self:
        for name, value in self.headers.items():
            text = value.get_secret_value()
            if not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
                raise ValueError(f"headers.{name}: this is not a valid header name")
            if not text.isascii() or not text.isprintable():
                raise ValueError(f"headers.{name}: a header must consist of printable ASCII characters")
        return self


class HttpFailure(Exception):
    """There is no usable answer. The text says why, and contains nothing of the request."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    content_type: str
    body: bytes
    #: The value of the header `Retry-After` in seconds; None without one, or if it is a date.
    retry_after: float | None = None


class HttpClient:
    """Connections to one service."""

    def __init__(self, settings: HttpSettings) -> None:
        """Raises PluginError if the library is missing, or `ca_file` cannot be used."""
        settings.check_installed()
        import httpx

        from trunkline.plugins.shipped.http_body import Body

        self._httpx = httpx
        self._body = Body
        self._request_timeout = settings.request_timeout
        self._max_size = settings.max_response_size
        self._headers = {
            "User-Agent": f"trunkline/{__version__}",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            **{name: value.get_secret_value() for name, value in settings.headers.items()},
        }
        # the whole request has one time limit, enforced below; only the connection has another
        self._extensions = {"timeout": {"connect": settings.connect_timeout, "read": None, "write": None, "pool": None}}
        # the transport without a client around it, which would log each URL, keep cookies, and read the environment
        self._transport = httpx.AsyncHTTPTransport(
            verify=_tls(settings.verify_tls, settings.ca_file),
            trust_env=False,
            limits=httpx.Limits(
                max_connections=settings.pool_size,
                max_keepalive_connections=settings.pool_size,
                keepalive_expiry=30.0,
            ),
        )

    async def request(
        self,
        method: str,
        url: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        status_only: bool = False,
    ) -> HttpAnswer:
        """`status_only`: the content and size of the answer do not matter.

        Raises:
            HttpFailure: there is no usable answer.
        """
        httpx = self._httpx
        try:
            with trio.fail_after(self._request_timeout):
                try:
                    return await self._request(method, url, content, headers, status_only)
                except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                    # usually an idle connection that the service has closed
                    return await self._request(method, url, content, headers, status_only)
        except trio.TooSlowError:
            raise HttpFailure(f"no answer within {self._request_timeout:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HttpFailure(_words(error) if isinstance(error, httpx.TransportError) else "a bad URL") from None

    async def _request(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str] | None, status_only: bool
    ) -> HttpAnswer:
        request = self._httpx.Request(
            method, url, headers={**self._headers, **(headers or {})}, content=content, extensions=self._extensions
        )
        request.stream = self._body(content or b"")
        response = await self._transport.handle_async_request(request)
        try:
            body = await self._read(response)
            if status_only:
                body = b""
            elif response.headers.get("content-encoding", "identity").lower() != "identity":
                raise HttpFailure("the answer is compressed, which was not requested")
            elif body is None:
                raise HttpFailure(f"the answer is longer than {self._max_size} bytes")
        finally:
            await response.aclose()
        return HttpAnswer(
            response.status_code,
            response.headers.get("content-type", "").partition(";")[0].strip().lower(),
            body,
            _seconds(response.headers.get("retry-after", "")),
        )

    async def _read(self, response: "httpx.Response") -> bytes | None:
        """None: it is too long."""
        body, too_long = bytearray(), False
        try:
            async for chunk in response.aiter_raw():
                if len(body) + len(chunk) <= self._max_size:
                    body += chunk
                else:
                    # the iteration goes on until it notices: breaking out of it would leave its generators open
                    too_long = True
                    await response.aclose()
        except self._httpx.ReadError:
            if not too_long:
                raise
        return None if too_long else bytes(body)

    async def aclose(self) -> None:
        await self._transport.aclose()


def _tls(verify: bool, ca_file: Path | None) -> ssl.SSLContext:
    if ca_file is None:
        context = ssl.create_default_context()
    else:
        try:
            context = ssl.create_default_context(cafile=str(ca_file))
        except (OSError, ssl.SSLError) as error:
            raise PluginError([f"ca_file: {ca_file} has no certificates that can be read: {error}"]) from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _words(error: BaseException) -> str:
    """The text of the innermost error of a chain: the outer ones are often empty."""
    name = type(error).__name__
    while not str(error) and (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return f"{name}: {error}"[:SHOWN]


def _seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() and len(text) < 10 else None
