"""Changes files of credentials. Nobody but their owner may read them from then on."""

from pathlib import Path

from trunkline.hooks.passwords import delete_password, set_password
from trunkline.hooks.scram import delete_scram, set_scram
from trunkline.management.rewriting import rewrite


def change_credentials(file: Path, name: str, password: str | None, *, scram: bool = False) -> None:
    """Gives the name a password; takes the name out when there is none.

    Raises:
        ValueError: the name or the password cannot stand in such a file.
        LookupError: there is no such name to take out.
    """
    if password is None:
        delete = delete_scram if scram else delete_password
        rewrite(file, lambda text: delete(text, name), private=True)
    elif not password:
        raise ValueError("an empty password is none")
    else:
        replace = set_scram if scram else set_password
        rewrite(file, lambda text: replace(text, name, password), private=True)
