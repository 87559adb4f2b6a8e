"""Placeholders for a client's data in a topic: `%c` is its client id, `%u` its user name, `%h` and `%p` are its address
and port."""

import re
from typing import Final

from trunkline.hooks import ClientInfo

#: A client chooses its names. With one of these characters a name would be more than one level, or a wildcard.
_SPECIAL: Final = re.compile("[/+#]")
_PLACEHOLDER: Final = re.compile("%([cuhp])")


def value_of(letter: str, client: ClientInfo) -> str | None:
    """The value of a placeholder; None if there is none, or it cannot be part of a topic level."""
    if letter == "c":
        value = client.client_id
    elif letter == "u":
        value = client.username or ""
    else:
        value = "" if client.peer is None else str(client.peer[letter == "p"])
    return value if value and not _SPECIAL.search(value) else None


def filled(text: str, client: ClientInfo) -> str | None:
    """A topic or topic filter with the client's values; None if one of them is not allowed in it, because it would
    change its meaning."""
    parts = _PLACEHOLDER.split(text)
    for place in range(1, len(parts), 2):
        value = value_of(parts[place], client)
        if value is None:
            return None
        parts[place] = value
    topic = "".join(parts)
    return None if topic.startswith("$") and not text.startswith("$") else topic
