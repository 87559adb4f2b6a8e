"""The options of the MQTT sink."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from trunkline.analytics import options
from trunkline.analytics.options import DURATION, FLAG, NAMES, OptionError, Takes, one_of, option, text, whole

_TEXT: Final = text("text")
_FILE: Final = text("a file's path")
#: Spark's own, which it hands over as well.
_OF_SPARK: Final = frozenset(("path", "checkpointlocation", "queryname", "outputmode", "__default__"))


def _positive(given: str) -> float:
    seconds: float = DURATION.parse(given)
    if not seconds:
        raise ValueError
    return seconds


class SinkError(ValueError):
    """An option, a column or a row that the sink cannot do with; the text says which and why."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """The options, with their defaults."""

    host: str = option(text("a name or an address"), "127.0.0.1")
    port: int = option(whole(1, 65_535, "a port, 1 to 65535"), 0)
    tls: bool = option(FLAG, False)
    ca: str = option(_FILE)
    cert: str = option(_FILE)
    key: str = option(_FILE)
    username: str = option(_TEXT)
    password: str = option(_TEXT, secret=True)
    password_file: str = option(_FILE)
    password_env: str = option(text("the name of an environment variable"))
    client_id_prefix: str = option(_TEXT, "trunkline-sink")
    #: A template over columns. Without it, the column `topic` has each row's topic.
    topic: str = option(_TEXT)
    #: The column that is the payload; without it and `columns`, the column `payload` if there is one, else JSON.
    payload: str = option(text("the name of a column"))
    #: The columns that the JSON has; all if there are none.
    columns: tuple[str, ...] = option(NAMES, ())
    qos: int = option(whole(0, 1, "0 or 1"), 1)
    retain: bool = option(FLAG, False)
    #: A template over columns that distinguishes a row from all others of its batch, in place of its number.
    id: str = option(_TEXT)
    #: Whether what a topic must not hold is written %2B instead.
    escape: bool = option(FLAG, False)
    #: What becomes of a row that cannot be a message.
    invalid: Literal["fail", "skip"] = option(one_of("fail", "skip"), "fail")
    max_inflight: int = option(whole(1, 65_535, "a whole number, 1 to 65535"), 256)
    #: Seconds.
    timeout: float = option(Takes(_positive, 'a duration, more than 0, such as "30s"'), 30.0)
    retries: int = option(whole(0, 1_000_000, "a whole number, 0 or more"), 5)
    #: Stands for the query in the number of each message.
    query: str = option(_TEXT)

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port or (8883 if self.tls else 1883)

    def secret(self) -> bytes | None:
        """The password. It is read where it is used, so that files and variables are those of the machine that
        connects.

        Raises:
            SinkError: there is no such file or variable.
        """
        if self.password_file:
            try:
                return Path(self.password_file).read_bytes().rstrip(b"\r\n")
            except OSError as error:
                raise SinkError(f"passwordFile {self.password_file}: {error.strerror}") from None
        if self.password_env:
            found = os.environ.get(self.password_env)
            if found is None:
                raise SinkError(f"passwordEnv {self.password_env}: there is no such environment variable")
            return found.encode()
        return self.password.encode() if self.password else None


def parse(given: Mapping[str, str]) -> SinkSettings:
    """The settings that the options ask for.

    Raises:
        SinkError: there is no such option, it has a value that it cannot have, or two of them exclude each other.
    """
    try:
        own = {name: value for name, value in given.items() if name.lower() not in _OF_SPARK}
        settings = SinkSettings(**options.parse(SinkSettings, own))
    except OptionError as error:
        raise SinkError(str(error)) from None
    if sum(map(bool, (settings.password, settings.password_file, settings.password_env))) > 1:
        raise SinkError("give one of the options password, passwordFile and passwordEnv")
    if settings.payload and settings.columns:
        raise SinkError("give one of the options payload and columns")
    if not settings.tls and (settings.ca or settings.cert or settings.key):
        raise SinkError("the options ca, cert and key are of use with tls=true only")
    if settings.key and not settings.cert:
        raise SinkError("option key: it belongs to a certificate, which option cert names")
    return settings
