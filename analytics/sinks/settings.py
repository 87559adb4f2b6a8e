"""The options of the MQTT sink."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from trunkline.analytics.options import OptionModel, Positive, Seconds, SomeNames, Word, read
from trunkline.config.units import Secret

#: Spark's own, which it hands over as well.
_OF_SPARK: Final = frozenset(("path", "checkpointlocation", "queryname", "outputmode", "__default__"))


class SinkError(ValueError):
    """A column or a row that the sink cannot do with, or a secret that is not there; the text says which and why."""


class SinkSettings(OptionModel):
    """The options, with their defaults."""

    host: Word = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_535)] = 0
    tls: bool = False
    ca: Word = ""
    cert: Word = ""
    key: Word = ""
    username: Word = ""
    password: Secret = SecretStr("")
    password_file: Word = ""
    password_env: Word = ""
    client_id_prefix: Word = "trunkline-sink"
    #: A template over columns. Without it, the column `topic` has each row's topic.
    topic: Word = ""
    #: The column that is the payload; without it and `columns`, the column `payload` if there is one, else JSON.
    payload: Word = ""
    #: The columns that the JSON has; all if there are none.
    columns: SomeNames = ()
    qos: Annotated[int, Field(ge=0, le=1)] = 1
    retain: bool = False
    #: A template over columns that distinguishes a row from all others of its batch, in place of its number.
    id: Word = ""
    #: Whether what a topic must not hold is written %2B instead.
    escape: bool = False
    #: How a row that cannot become a message is handled.
    invalid: Annotated[Literal["fail", "skip"], BeforeValidator(str.lower)] = "fail"
    max_inflight: Annotated[int, Field(ge=1, le=65_535)] = 256
    #: Seconds.
    timeout: Positive = 30.0
    #: Seconds in which nothing arrives, with connections that fail. A broker is back from a restart by then.
    retry_for: Seconds = 600.0
    #: Stands for the query in the number of each message.
    query: Word = ""

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port or (8883 if self.tls else 1883)

    def secret(self) -> bytes | None:
        """The password. It is read where it is used, so that files and variables are those of the machine that
        connects.

        Raises:
            SinkError: the file or variable does not exist.
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
        return self.password.get_secret_value().encode() or None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if sum(map(bool, (self.password.get_secret_value(), self.password_file, self.password_env))) > 1:
            raise ValueError("give one of the options password, passwordFile and passwordEnv")
        if self.payload and self.columns:
            raise ValueError("give one of the options payload and columns")
        if not self.tls and (self.ca or self.cert or self.key):
            raise ValueError("the options ca, cert and key are of use with tls=true only")
        if self.key and not self.cert:
            raise ValueError("option key: it belongs to a certificate, which option cert names")
        return self


def parse(given: Mapping[str, str]) -> SinkSettings:
    """The settings that the options ask for.

    Raises:
        OptionError: there is no such option, it has a value that it cannot have, or two of them exclude each other.
    """
    return read(SinkSettings, {name: value for name, value in given.items() if name.lower() not in _OF_SPARK})
