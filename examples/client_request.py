"""Requests and responses with correlation data (MQTT 5.0), here with a broker in the same process.

Run it with `python examples/client_request.py`.
"""

import trio

from trunkline import testing
from trunkline.client import Client, Subscription


async def serve(client: Client, requests: Subscription) -> None:
    async for request in requests:
        to = request.properties.get("response_topic")
        if to is None:
            continue  # nobody waits for an answer
        answer = str(int(request.payload) ** 2)
        numbers = request.properties.get("correlation_data", b"")
        await client.publish(to, answer, qos=1, properties={"correlation_data": numbers})


async def main() -> None:
    async with (
        testing.broker() as broker,
        Client(open_stream=broker.connect) as server,
        Client(open_stream=broker.connect) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(serve, server, await server.subscribe("square", qos=1))
        here = f"answers/{client.client_id}"
        async with await client.subscribe(here, qos=1) as answers:
            for number in (3, 4):
                await client.publish(
                    "square",
                    str(number),
                    qos=1,
                    properties={"response_topic": here, "correlation_data": b"%d" % number},
                )
            for _ in (3, 4):
                answer = await answers.receive()
                print(answer.properties.get("correlation_data", b"").decode(), answer.payload.decode())
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
