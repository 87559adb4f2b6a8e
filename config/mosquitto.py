"""Recognises what belongs into a file of Mosquitto, so that the error can name the page that says what it is here."""

from typing import Final

#: Keys of mosquitto.conf that are no sections here.
_WORDS: Final = frozenset(
    [
        "acl_file",
        "address",
        "allow_anonymous",
        "allow_zero_length_clientid",
        "autosave_interval",
        "autosave_on_changes",
        "bind_address",
        "cafile",
        "capath",
        "certfile",
        "clientid_prefixes",
        "connection",
        "connection_messages",
        "global_plugin",
        "include_dir",
        "keyfile",
        "listener",
        "log_dest",
        "log_timestamp",
        "log_type",
        "max_connections",
        "max_inflight_bytes",
        "max_inflight_messages",
        "max_keepalive",
        "max_packet_size",
        "max_queued_bytes",
        "max_queued_messages",
        "message_size_limit",
        "password_file",
        "per_listener_settings",
        "persistence",
        "persistence_file",
        "persistence_location",
        "persistent_client_expiration",
        "pid_file",
        "plugin",
        "port",
        "protocol",
        "psk_file",
        "queue_qos0_messages",
        "require_certificate",
        "retain_available",
        "socket_domain",
        "sys_interval",
        "topic",
        "use_username_as_clientid",
        "user",
        "websockets_log_level",
    ]
)
_PAGE: Final = "is Mosquitto's: docs/coming-from-mosquitto.md says what it is here"


def word_hint(word: str) -> str:
    return f"; {word} {_PAGE}" if word in _WORDS else ""


def file_hint(text: str) -> str:
    """Of a file that is no TOML."""
    lines = (line.split() for line in text.splitlines()[:1000])
    found = next((words[0] for words in lines if len(words) > 1 and words[0] in _WORDS and words[1] != "="), None)
    return "" if found is None else word_hint(found)
