"""One client under test in a process of its own: `python -m bench.client_runs CLIENT WORKLOAD QOS PORT NUMBER`.

Each client does the work as its documentation suggests for speed. A run counts when all messages were acknowledged, or
came. It prints the messages, the seconds and the processor time of the process, as JSON.
"""

import asyncio
import json
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

TOPIC: Final = "bench/client"
PAYLOAD: Final = bytes(64)
#: Messages on their way at once.
WINDOW: Final = 1000
#: The generator begins when the client has subscribed, and says so here.
READY: Final = "ready"


class Clock:
    """What one run took: seconds on the wall and of the processor, all threads of the process together."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    @staticmethod
    def _cpu() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), self._cpu()
        yield
        self.seconds, self.cpu_seconds = time.perf_counter() - wall, self._cpu() - cpu


def ready() -> None:
    print(READY, flush=True)


# Trunkline


def trunkline(workload: str, qos: int, port: int, number: int, clock: Clock) -> int:
    import trio

    from trunkline.client import Client, ConnectionSettings

    async def main() -> int:
        settings = ConnectionSettings(host="127.0.0.1", port=port, receive_maximum=65_535)
        async with Client(settings, max_queued=number) as client:
            if workload == "receive":
                subscription = await client.subscribe(TOPIC, qos=qos)
                ready()
                count = 0
                async for _ in subscription:
                    count += 1
                    if count == 1:
                        running = clock.running()
                        running.__enter__()
                    elif count == number:
                        break
                running.__exit__(None, None, None)
                return count
            with clock.running():
                if workload == "publish-many":
                    await client.publish_many(TOPIC, [PAYLOAD] * number, qos=qos)
                elif workload == "publish":
                    receipts = [client.publish_nowait(TOPIC, PAYLOAD, qos=qos) for _ in range(number)]
                    for receipt in receipts:
                        if not receipt.is_done:
                            await receipt.wait()
                else:
                    for _ in range(number):
                        await client.publish(TOPIC, PAYLOAD, qos=qos)
        return number

    return trio.run(main)


# Paho


def paho(workload: str, qos: int, port: int, number: int, clock: Clock) -> int:
    from paho.mqtt.client import Client, MQTTMessage
    from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.max_inflight_messages_set(WINDOW)
    client.max_queued_messages_set(0)
    connected, subscribed, done = threading.Event(), threading.Event(), threading.Event()
    count = 0
    running = clock.running()

    def on_message(_client: Client, _userdata: object, _message: MQTTMessage) -> None:
        nonlocal count
        count += 1
        if count == 1:
            running.__enter__()
        elif count == number:
            running.__exit__(None, None, None)
            done.set()

    client.on_connect = lambda *_: connected.set()
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = on_message
    client.connect("127.0.0.1", port)
    client.loop_start()
    connected.wait()
    if workload == "receive":
        client.subscribe(TOPIC, qos)
        subscribed.wait()
        ready()
        done.wait()
    else:
        with clock.running():
            if workload == "publish":
                infos = [client.publish(TOPIC, PAYLOAD, qos) for _ in range(number)]
                for info in infos:
                    info.wait_for_publish()
            else:
                for _ in range(number):
                    client.publish(TOPIC, PAYLOAD, qos).wait_for_publish()
        count = number
    client.disconnect()
    client.loop_stop()
    return count


# gmqtt


async def _gmqtt(workload: str, qos: int, port: int, number: int, clock: Clock) -> int:
    from gmqtt import Client

    client = Client("bench-gmqtt", receive_maximum=WINDOW)
    client.set_config({"reconnect_retries": 0})
    subscribed, done = asyncio.Event(), asyncio.Event()
    count = 0
    running = clock.running()

    def on_message(_client: object, _topic: str, _payload: bytes, _qos: int, _properties: object) -> int:
        nonlocal count
        count += 1
        if count == 1:
            running.__enter__()
        elif count == number:
            running.__exit__(None, None, None)
            done.set()
        return 0

    client.on_message = on_message
    client.on_subscribe = lambda *_: subscribed.set()
    await client.connect("127.0.0.1", port)
    if workload == "receive":
        client.subscribe(TOPIC, qos)
        await subscribed.wait()
        ready()
        await done.wait()
    else:
        with clock.running():
            for sent in range(1, number + 1):
                client.publish(TOPIC, PAYLOAD, qos=qos)
                if sent % WINDOW == 0:  # it keeps no window itself: the server's would be exceeded
                    await _gmqtt_settled(client)
            await _gmqtt_settled(client)
        count = number
    await client.disconnect()
    return count


async def _gmqtt_settled(client: object) -> None:
    """Its list of what is not acknowledged is empty, and so is its output."""
    transport = client._connection._transport  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while not client._persistent_storage.is_empty or transport.get_write_buffer_size():  # type: ignore[attr-defined]  # noqa: ASYNC110
        await asyncio.sleep(0)


def gmqtt(workload: str, qos: int, port: int, number: int, clock: Clock) -> int:
    return asyncio.run(_gmqtt(workload, qos, port, number, clock))


# aiomqtt


async def _aiomqtt(workload: str, qos: int, port: int, number: int, clock: Clock) -> int:
    from aiomqtt import Client, ProtocolVersion

    async with Client(
        "127.0.0.1", port, protocol=ProtocolVersion.V5, max_inflight_messages=WINDOW, max_queued_outgoing_messages=0
    ) as client:
        client.pending_calls_threshold = number
        if workload == "receive":
            await client.subscribe(TOPIC, qos)
            ready()
            count = 0
            running = clock.running()
            async for _ in client.messages:
                count += 1
                if count == 1:
                    running.__enter__()
                elif count == number:
                    running.__exit__(None, None, None)
                    break
            return count
        with clock.running():
            if workload == "publish":
                for start in range(0, number, WINDOW):
                    some = min(WINDOW, number - start)
                    await asyncio.gather(*[client.publish(TOPIC, PAYLOAD, qos) for _ in range(some)])
            else:
                for _ in range(number):
                    await client.publish(TOPIC, PAYLOAD, qos)
    return number


def aiomqtt(workload: str, qos: int, port: int, number: int, clock: Clock) -> int:
    return asyncio.run(_aiomqtt(workload, qos, port, number, clock))


CLIENTS: Final[dict[str, Callable[[str, int, int, int, Clock], int]]] = {
    "trunkline": trunkline,
    "paho-mqtt": paho,
    "gmqtt": gmqtt,
    "aiomqtt": aiomqtt,
}


def main() -> None:
    name, workload, qos, port, number = sys.argv[1:]
    clock = Clock()
    count = CLIENTS[name](workload, int(qos), int(port), int(number), clock)
    print(json.dumps({"count": count, "seconds": clock.seconds, "cpu_seconds": clock.cpu_seconds}), flush=True)


if __name__ == "__main__":
    main()
