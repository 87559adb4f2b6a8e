"""Requests of one client to another (MQTT 5.0), here with a broker in the same process.

Run it with `python examples/client_request.py`.
"""

import trio

from trunkline import testing
from trunkline.client import Client, NoResponse, RequestFailed, Subscription


async def serve(client: Client, requests: Subscription) -> None:
    async for request in requests:
        try:
            answer = int(request.text) ** 2
        except ValueError as error:
            await client.respond(request, error=str(error))
        else:
            await client.respond(request, str(answer))


async def main() -> None:
    async with (
        testing.broker() as broker,
        Client(open_stream=broker.connect) as server,
        Client(open_stream=broker.connect) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(serve, server, await server.subscribe("square", qos=1))
        for number in ("3", "4", "five"):
            try:
                response = await client.request("square", number, timeout=5)
            except RequestFailed as error:
                print(number, "failed:", error)
            else:
                print(number, response.text)
        try:
            await client.request("cube", "3", timeout=5)
        except NoResponse as error:
            print(error)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
