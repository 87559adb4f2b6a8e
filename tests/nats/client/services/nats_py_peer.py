"""The other side of a service, by nats-py: `ask URL`, or `serve URL` until standard input ends.

A process of its own, as its package has the name of a folder of ours.
"""

import asyncio
import json
import sys
from typing import Any

import nats
from nats.micro import add_service
from nats.micro.service import ServiceInfo, ServicePing, ServiceStats


async def ask(url: str) -> None:
    """Prints what a service says, as this client understands it."""
    client = await nats.connect(url)
    answer = await client.request("math.double", b"ab", timeout=60)
    refusal = await client.request("math.double", b"", timeout=60)
    found: dict[str, Any] = {
        "answer": [answer.data.decode(), answer.headers["By"]],
        "refusal": [refusal.headers["Nats-Service-Error-Code"], refusal.headers["Nats-Service-Error"]],
    }
    for verb, kind in (("PING", ServicePing), ("INFO", ServiceInfo), ("STATS", ServiceStats)):
        said = kind.from_dict(json.loads((await client.request(f"$SRV.{verb}.math", timeout=60)).data))
        found[verb] = [said.name, said.version, said.id]
    (stats,) = said.endpoints
    found["stats"] = [stats.subject, stats.num_requests, stats.num_errors, stats.last_error]
    await client.close()
    print(json.dumps(found))


async def handle(request: Any) -> None:
    if request.data:
        await request.respond(request.data * 2)
    else:
        await request.respond_error("400", "nothing to double")


async def serve(url: str) -> None:
    client = await nats.connect(url)
    service = await add_service(client, name="math", version="2.0.0")
    await service.add_endpoint(name="double", handler=handle)
    await client.flush()
    await client.flush()  # its PING overtakes what it has not written yet; this one does not
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await service.stop()
    await client.close()


asyncio.run({"ask": ask, "serve": serve}[sys.argv[1]](sys.argv[2]))
