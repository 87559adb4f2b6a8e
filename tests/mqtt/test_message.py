"""What becomes of a message that is kept."""

from dataclasses import fields

from trunkline.mqtt.frames import publish_pieces
from trunkline.mqtt.message import Message
from trunkline.mqtt.versions import Version


def test_a_bare_message_has_everything_but_its_encoded_forms() -> None:
    message = Message("t", b"x", 1, True, {"content_type": "text"}, "client", "user", 7, 1.5, 9.5)
    for version in (Version.V311, Version.V5):
        for retain in (False, True):
            publish_pieces(message, version, 0, retain)
    bare = message.bare()
    for field in fields(Message):
        made = field.name in ("wire3", "wire5", "frames")
        assert getattr(bare, field.name) == (None if made else getattr(message, field.name)), field.name
        assert getattr(message, field.name) is not None or field.name == "stored"
