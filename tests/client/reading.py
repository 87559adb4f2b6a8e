"""What tests read of a receiver, and of a broker."""

from trunkline.client.received import ReceivedMessage
from trunkline.client.receivers import Receiver
from trunkline.testing import Broker
from trunkline.testing.published import Published


async def some(receiver: Receiver, number: int) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    async for message in receiver:
        found.append(message)
        if len(found) == number:
            break
    return found


def published(broker: Broker, topic: str) -> list[Published]:
    return [each for each in broker.messages if each.topic == topic]
