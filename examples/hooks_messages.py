"""Watch messages, change them, refuse them.

Run it with `python examples/hooks_messages.py`.
"""

from dataclasses import replace

from trunkline.hooks import DROP, ClientInfo, Deny, Hooks
from trunkline.hooks.points import MESSAGE_DELIVER, MESSAGE_PUBLISH
from trunkline.mqtt.message import Message
from trunkline.mqtt.reasons import Reason

hooks = Hooks()


@hooks.on("message.publish", priority=10)
def no_large_readings(client: ClientInfo, message: Message) -> Deny | None:
    if message.topic.startswith("readings/") and len(message.payload) > 100:
        return Deny(Reason.QUOTA_EXCEEDED, "a reading has at most 100 bytes")
    return None


@hooks.on("message.publish", filter=lambda client, message: not client.client_id.startswith("room/"))
def into_its_room(client: ClientInfo, message: Message) -> Message:
    """Everybody else publishes under a topic of their own. The message is shared: a copy is changed."""
    return replace(message, topic=f"from/{client.client_id}/{message.topic}")


def hide(client: ClientInfo, message: Message, word: bytes) -> Deny | None:
    return DROP if word in message.payload else None


hooks.add("message.deliver", hide, args=(b"secret",))


def main() -> None:
    meter = ClientInfo("meter")

    routed = hooks.transform(MESSAGE_PUBLISH, meter, Message("readings/1", b"21.5"))
    assert isinstance(routed, Message)
    print("routed to", routed.topic)
    assert routed.topic == "from/meter/readings/1"

    refused = hooks.transform(MESSAGE_PUBLISH, meter, Message("readings/1", bytes(200)))
    print("refused:", refused)
    assert refused == Deny(Reason.QUOTA_EXCEEDED, "a reading has at most 100 bytes")

    assert hooks.transform(MESSAGE_DELIVER, meter, Message("a", b"my secret")) is DROP


if __name__ == "__main__":
    main()
