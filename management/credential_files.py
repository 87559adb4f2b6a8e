"""Changes files of credentials. Nobody but their owner may read them from then on."""

from pathlib import Path

from trunkline.hooks.credentials import CredentialsError
from trunkline.hooks.passwords import delete_password, parse_passwords, set_password
from trunkline.hooks.scram import delete_scram, parse_scram, set_scram
from trunkline.management.rewriting import rewrite


def change_credentials(file: Path, name: str, password: str | None, *, scram: bool = False) -> None:
    """Gives the name a password; takes the name out when there is none.

    Raises:
        ValueError: the name or the password cannot stand in such a file.
        LookupError: there is no such name to take out.
        CredentialsError: the file is none of this kind; it stays as it is.
    """
    if password == "":
        raise ValueError("an empty password is none")

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
        raise CredentialsError([f"{file} is a file of {kinds[not scram]}"]) from None
