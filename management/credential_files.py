"""Changes files of credentials so that a broker, or a crash, never finds half a file or one that others may read."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from trunkline.hooks.passwords import delete_password, set_password
from trunkline.hooks.scram import delete_scram, set_scram


def change_credentials(file: Path, name: str, password: str | None, *, scram: bool = False) -> None:
    """Gives the name a password; takes the name out when there is none.

    Raises:
        ValueError: the name or the password cannot stand in such a file.
        LookupError: there is no such name to take out.
    """
    if password is None:
        delete = delete_scram if scram else delete_password
        rewrite(file, lambda text: delete(text, name))
    elif not password:
        raise ValueError("an empty password is none")
    else:
        replace = set_scram if scram else set_password
        rewrite(file, lambda text: replace(text, name, password))


def rewrite(file: Path, change: Callable[[str], str]) -> None:
    """Puts the changed text into the place of the file, which nobody but its owner may read from then on."""
    file = file.resolve()  # what a link leads to is replaced, not the link
    try:
        former = file.stat()
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        former, text = None, ""
    changed = change(text)
    draft = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(changed)
            stream.flush()
            os.fsync(descriptor)
        if former is not None and os.name != "nt" and former.st_uid != os.geteuid():
            os.chown(draft, former.st_uid, former.st_gid)  # an administrator changes what the broker's user reads
        os.replace(draft, file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
