"""A stream of orders, and two workers that share them.

Run it with `python examples/streams.py`.
"""

import trio

import trunkline.testing
from trunkline.client import Client
from trunkline.streams import ConsumerConfig, Retention, StreamConfig

ORDERS = StreamConfig(name="orders", filters=("orders/#",), retention=Retention.WORK_QUEUE)
BILLING = ConsumerConfig(name="billing", durable=True, deliver_group="workers", backoff=(1.0, 5.0, 30.0))


async def work(broker: trunkline.testing.Broker, bills: list[str]) -> None:
    async with broker.streams.consume("orders", "billing", group="workers") as messages:
        async for message in messages:
            bills.append(f"{message.topic}: {message.payload.decode()}")
            message.ack()


async def main() -> None:
    async with trunkline.testing.broker() as broker, trio.open_nursery() as nursery:
        await broker.streams.create(ORDERS)
        await broker.streams.create_consumer("orders", BILLING)
        async with Client(open_stream=broker.connect) as client:
            for number in range(1, 4):
                await client.publish(f"orders/{number}", f"{number} apples", qos=1)
        print("orders to do:", broker.streams.info("orders").messages)
        bills: list[str] = []
        for _ in range(2):
            nursery.start_soon(work, broker, bills)
        while broker.streams.info("orders").messages:
            await trio.lowlevel.checkpoint()
        print(*sorted(bills), sep="\n")
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
