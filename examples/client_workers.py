"""Work on messages in several tasks and acknowledge each when it is done, here with a broker in the same process.

Run it with `python examples/client_workers.py`.
"""

import trio

from trunkline import testing
from trunkline.client import Client, ReceivedMessage

JOBS = 6


async def work(jobs: trio.MemoryReceiveChannel[ReceivedMessage], results: list[str]) -> None:
    async with jobs:
        async for message in jobs:
            await trio.sleep(0.01)  # the work
            results.append(message.text)
            message.ack()  # in any order: the server gets the acknowledgements in its own


async def main() -> None:
    results: list[str] = []
    async with testing.broker() as broker, Client(open_stream=broker.connect) as client:
        jobs = await client.subscribe("jobs/#", qos=1, manual_ack=True)
        await client.publish_many("jobs/resize", [b"%d" % number for number in range(JOBS)], qos=1)
        # The block of the nursery ends when the workers have done all
        async with trio.open_nursery() as nursery:
            outbox, inbox = trio.open_memory_channel(0)
            async with outbox, inbox:
                for _ in range(3):
                    nursery.start_soon(work, inbox.clone(), results)
                for _ in range(JOBS):
                    await outbox.send(await jobs.receive())
        await jobs.unsubscribe()
    print(*sorted(results))


if __name__ == "__main__":
    trio.run(main)
