"""Changes credential files. Afterwards only their owner may read them."""

from pathlib import Path

from trunkline.hooks.credentials import CredentialsError, check_name
from trunkline.hooks.passwords import delete_password, parse_passwords, set_password
from trunkline.hooks.scram import delete_scram, parse_scram, set_scram
from trunkline.management.rewriting import read, rewrite


def check_change(file: Path, name: str, *, scram: bool = False) -> None:
    """Raises what `change_credentials` would, before anybody has typed a password."""
    _, text = read(file)
    _check(text, file, scram)
    check_name(name)


def change_credentials(file: Path, name: str, password: str | None, *, scram: bool = False) -> None:
    """Set the password of a name; without a password, remove the name.

    Raises:
        ValueError: the name or the password is not allowed in such a file.
        LookupError: the name to remove does not exist, or the file.
        CredentialsError: the file is of another kind; it is unchanged.
    """
    if password == "":
        raise ValueError("the password must not be empty")

    if password is None and not file.exists():
        raise LookupError("there is no such file")

    def change(text: str) -> str:
        _check(text, file, scram)
        if password is None:
            return (delete_scram if scram else delete_password)(text, name)
        return (set_scram if scram else set_password)(text, name, password)

    rewrite(file, change, private=True)


def _check(text: str, file: Path, scram: bool) -> None:
    parse, other = (parse_scram, parse_passwords) if scram else (parse_passwords, parse_scram)
    try:
        parse(text, str(file))
    except CredentialsError as error:
        try:
            other(text)
        except CredentialsError:
            raise error from None
        kinds = ("passwords: leave --scram out", "SCRAM keys: it takes --scram")
        raise CredentialsError([f"{file} holds {kinds[not scram]}"]) from None
