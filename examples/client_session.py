"""Several subscriptions, retained messages, hooks for reconnections and an orderly end, here with a broker in the same
process.

Run it with `python examples/client_session.py`.
"""

import trio

from trunkline import testing
from trunkline.client import ConnectionSettings, SessionClient, Subscription


async def show(name: str, messages: Subscription) -> None:
    async for message in messages:
        print(name, message.topic, message.text or "deleted", "retained" if message.retain else "now")


async def main() -> None:
    async with testing.broker() as broker:
        client = SessionClient(
            ConnectionSettings(client_id="hall"),
            open_stream=broker.connect,
            on_connected=lambda connack: print("connected, session present:", connack.session_present),
            on_disconnected=lambda error: print("lost:", error),
        )
        async with client, trio.open_nursery() as nursery:
            doors = await client.subscribe("door/front", "door/back", qos=2)
            nursery.start_soon(show, "doors:", doors)
            broker.faults.cut(client="hall")
            await client.publish("door/front", "open", qos=2)  # waits for the next connection
            await client.publish("lamp/hall", "on", qos=1, retain=True)
            lamps = await client.subscribe("lamp/+", qos=1)  # gets what is retained
            nursery.start_soon(show, "lamps:", lamps)
            receipts = [client.publish_nowait("count", str(number), qos=1) for number in range(100)]
            for receipt in receipts:
                await receipt.wait()
            await client.publish("lamp/hall", "", qos=1, retain=True)  # deletes the retained message
            await lamps.unsubscribe()  # the loops end when they have got all that is there
            await doors.unsubscribe()


if __name__ == "__main__":
    trio.run(main)
