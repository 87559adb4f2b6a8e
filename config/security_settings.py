"""The sections about who may connect, publish and subscribe."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

from trunkline.config.section import Section, key
from trunkline.config.units import Duration, OptionalFlag, OptionalPath, Whole

#: The authenticators of the broker itself, by the names that a listener's `authenticators` may have.
PASSWORDS: Final = "passwords"
SCRAM: Final = "scram"


class CredentialFiles(NamedTuple):
    password_file: Path | None
    client_id_file: Path | None
    scram_file: Path | None


class AuthSettings(Section):
    """Who may connect. Password files are written by `trunkline passwd`; a listener may have files of its own."""

    allow_anonymous: OptionalFlag = key(
        None,
        "Whether clients may connect without credentials. When it is not set they may on loopback listeners, "
        "as long as no file below is given.",
    )
    password_file: OptionalPath = key(None, "User names and hashed passwords.")
    client_id_file: OptionalPath = key(
        None,
        "Client ids and hashed passwords. Who connects with one of these ids must send its password, however else it "
        "logs in.",
    )
    scram_file: OptionalPath = key(None, "SCRAM credentials for 5.0 enhanced authentication.")

    @property
    def files(self) -> CredentialFiles:
        return CredentialFiles(self.password_file, self.client_id_file, self.scram_file)


class PasswordSettings(Section):
    """How passwords of these files are verified, so that guessing does not delay other logins."""

    threads: Whole = key(2, "Threads that verify passwords. Each takes a processor meanwhile.", "threads", ge=1, le=64)
    max_waiting: Whole = key(
        1000,
        "Logins that wait for a thread; addresses take turns, and the names at an address. Beyond that logins are "
        "refused (0x89), first those of the address with the most.",
        "logins",
        ge=1,
    )
    max_failures: Whole = key(
        5,
        "Different wrong passwords for one name from one address within `window`. After that a login is refused "
        "(0x9F) before its password is verified, unless the same login was right before. 0 means no limit.",
        "passwords",
        ge=0,
    )
    max_failures_by_address: Whole = key(
        100,
        "The same for all names together. This machine is exempt, since all clients of a proxy have its address. "
        "0 means no limit.",
        "passwords",
        ge=0,
    )
    window: Duration = key(60.0, "The time in which wrong passwords are counted.", "seconds", gt=0)
    pause: Duration = key(60.0, "How long logins are refused after that.", "seconds", gt=0)
    max_tracked: Whole = key(10_000, "Logins, names and addresses that are remembered; the latest are kept.", ge=1)


class AclSettings(Section):
    """Who may publish and subscribe to what."""

    file: OptionalPath = key(None, "Access rules.")
    deny_action: Literal["ignore", "disconnect"] = key(
        "ignore",
        "What happens to a client that publishes without the right: its message is dropped, or it is "
        "disconnected as well.",
    )
    no_match: Literal["allow", "deny"] = key("allow", "The decision when no rule matches.")
    cache_size: Whole = key(
        1024,
        "Decisions remembered for each connection, about topics of up to 256 characters. 0 asks the rules every time.",
        "decisions",
        ge=0,
    )
    asked_again: Whole = key(
        8,
        "Subscriptions that async plugins and hooks are asked about at the same time, when access may have changed.",
        "subscriptions",
        ge=1,
    )
    timeout: Duration = key(
        60.0, "A decision that plugins and hooks have not made after this time is a no.", "seconds", gt=0
    )


class FlappingSettings(Section):
    """Clients with the same id that take over each other's session again and again."""

    max_takeovers: Whole = key(
        30, "Takeovers of one client id within `window` that are tolerated. 0 means no limit.", ge=0
    )
    window: Duration = key(60.0, "The time in which takeovers are counted.", "seconds", gt=0)
    jail: Duration = key(60.0, "How long the client id is refused after that.", "seconds", gt=0)
