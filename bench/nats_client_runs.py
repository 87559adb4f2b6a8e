"""One client of NATS in a process of its own: `python -m bench.nats_client_runs CLIENT WORKLOAD PORT NUMBER`.

Each client does the work as its documentation suggests. It prints the seconds of the processor that the process took
between its first and its last message.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PAYLOAD: Final = bytes(64)
SUBJECT: Final = "bench"
#: Messages on their way at once.
WINDOW: Final = 1000
#: Messages of one pull.
BATCH: Final = 100
#: Messages of a run, by workload.
NUMBERS: Final = {
    "publish": 200_000,
    "publish-receive": 100_000,
    "request": 5_000,
    "stream-publish": 50_000,
    "stream-publish-fast": 50_000,
    "stream-publish-each": 5_000,
    "stream-pull": 50_000,
    "stream-push": 50_000,
    "stream-push-acks": 50_000,
}


async def trunkline(workload: str, port: int, number: int) -> float:
    from trunkline.nats import connect
    from trunkline.nats.jetstream.configs import AckPolicy, ConsumerConfig, Storage, StreamConfig

    async with connect(f"127.0.0.1:{port}") as client:
        js = client.jetstream()
        if workload.startswith("stream"):
            names = [each.config.name for each in await js.streams()]
            for name in names:
                await js.delete_stream(name)
            stream = StreamConfig(name="B", subjects=(SUBJECT,), storage=Storage.MEMORY)
            await js.create_stream(replace(stream, allow_batched=workload == "stream-publish-fast"))
        if workload in ("stream-pull", "stream-push", "stream-push-acks"):
            async with js.publisher(window=WINDOW) as publisher:
                for _ in range(number):
                    await publisher.publish(SUBJECT, PAYLOAD)
        config = ConsumerConfig(max_ack_pending=number)
        began = time.process_time()
        match workload:
            case "publish":
                for _ in range(number):
                    await client.publish(SUBJECT, PAYLOAD)
                await client.flush()
            case "publish-receive":
                with client.subscribe(SUBJECT, max_messages=number) as messages:
                    for _ in range(number):
                        await client.publish(SUBJECT, PAYLOAD)
                    for _ in range(number):
                        await messages.receive()
            case "request":
                import trio

                with client.subscribe(SUBJECT) as messages:
                    async with trio.open_nursery() as nursery:

                        async def answer() -> None:
                            async for message in messages:
                                message.respond(PAYLOAD)

                        nursery.start_soon(answer)
                        for _ in range(number):
                            await client.request(SUBJECT, PAYLOAD)
                        nursery.cancel_scope.cancel()
            case "stream-publish":
                async with js.publisher(window=WINDOW) as publisher:
                    for _ in range(number):
                        await publisher.publish(SUBJECT, PAYLOAD)
            case "stream-publish-fast":
                async with js.fast_batch() as batch:
                    for _ in range(number):
                        await batch.publish(SUBJECT, PAYLOAD)
            case "stream-publish-each":
                for _ in range(number):
                    await js.publish(SUBJECT, PAYLOAD)
            case "stream-pull":
                async with js.subscribe_pull(SUBJECT, durable="d", config=config) as pulled:
                    taken = 0
                    while taken < number:
                        for message in await pulled.fetch(BATCH):
                            message.ack()
                            taken += 1
                    await client.flush()
            case _:
                if workload == "stream-push":
                    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
                async with js.subscribe(SUBJECT, config=config) as pushed:
                    for _ in range(number):
                        (await pushed.receive()).ack()
                    await client.flush()
        return time.process_time() - began


async def nats_py(workload: str, port: int, number: int) -> float:
    import nats
    from nats.js import api

    client = await nats.connect(f"nats://127.0.0.1:{port}", pending_size=1 << 30)
    js: Any = client.jetstream(publish_async_max_pending=WINDOW)
    if workload.startswith("stream"):
        for stream in await js.streams_info():
            await js.delete_stream(stream.config.name)
        await js.add_stream(name="B", subjects=[SUBJECT], storage=api.StorageType.MEMORY)
    if workload in ("stream-pull", "stream-push", "stream-push-acks"):
        for _ in range(number):
            await js.publish_async(SUBJECT, PAYLOAD)
        await js.publish_async_completed()
    config = api.ConsumerConfig(max_ack_pending=number)
    began = time.process_time()
    match workload:
        case "publish":
            for _ in range(number):
                await client.publish(SUBJECT, PAYLOAD)
            await client.flush()
        case "publish-receive":
            messages = await client.subscribe(SUBJECT, pending_msgs_limit=number)
            for _ in range(number):
                await client.publish(SUBJECT, PAYLOAD)
            for _ in range(number):
                await messages.next_msg(timeout=10)
        case "request":

            async def answer(message: Any) -> None:
                await message.respond(PAYLOAD)

            await client.subscribe(SUBJECT, cb=answer)
            for _ in range(number):
                await client.request(SUBJECT, PAYLOAD)
        case "stream-publish" | "stream-publish-fast":  # it has no fast batches: this is its fastest way
            for _ in range(number):
                await js.publish_async(SUBJECT, PAYLOAD)
            await js.publish_async_completed()
        case "stream-publish-each":
            for _ in range(number):
                await js.publish(SUBJECT, PAYLOAD)
        case "stream-pull":
            pulled = await js.pull_subscribe(SUBJECT, "d", config=config)
            taken = 0
            while taken < number:
                for message in await pulled.fetch(BATCH):
                    await message.ack()
                    taken += 1
            await client.flush()
        case _:
            if workload == "stream-push":
                config = api.ConsumerConfig(ack_policy=api.AckPolicy.NONE)
            pushed = await js.subscribe(SUBJECT, config=config, manual_ack=True)
            for _ in range(number):
                message = await pushed.next_msg(timeout=10)
                if workload == "stream-push-acks":
                    await message.ack()
            await client.flush()
    took = time.process_time() - began
    await client.close()
    return took


def _on_trio(run: Callable[[str, int, int], Awaitable[float]], *given: Any) -> float:
    import trio

    return trio.run(run, *given)  # type: ignore[arg-type]


def _on_asyncio(run: Callable[[str, int, int], Awaitable[float]], *given: Any) -> float:
    # the folder `nats` of this project has the name of that package
    sys.path = [each for each in sys.path if Path(each).resolve() != ROOT]
    return asyncio.run(run(*given))  # type: ignore[arg-type]


CLIENTS: Final = {"trunkline": (_on_trio, trunkline), "nats-py": (_on_asyncio, nats_py)}


if __name__ == "__main__":
    start, client_run = CLIENTS[sys.argv[1]]
    print(start(client_run, sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
