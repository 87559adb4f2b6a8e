"""A worker that takes jobs from MQTT: requests in, replies out, several workers sharing the load.

It uses what MQTT 5.0 has for that: shared subscriptions, response topics and correlation data. It comes back when its
connection is lost, with growing pauses, and says when it leaves.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

_logger = logging.getLogger("worker")

Handler = Callable[[object], Awaitable[object]]


class Worker:
    def __init__(
        self, host: str, port: int, name: str, handler: Handler, *, at_once: int = 4, pause: float = 1
    ) -> None:
        """`at_once` jobs are worked on at a time. `pause` is the seconds before it connects again, at first."""
        self._host, self._port = host, port
        self._name = name
        self._handler = handler
        self._room = asyncio.Semaphore(at_once)
        self._pause = pause
        #: Set when it takes jobs for the first time.
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        pause = self._pause
        while True:
            try:
                await self._work()
            except aiomqtt.MqttError as error:
                _logger.warning("%s: connection lost: %s", self._name, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, 60)

    async def _work(self) -> None:
        status = f"workers/{self._name}"
        async with aiomqtt.Client(
            self._host,
            self._port,
            identifier=self._name,
            protocol=aiomqtt.ProtocolVersion.V5,
            will=aiomqtt.Will(status, "lost", qos=1, retain=True),
        ) as client:
            await client.subscribe("$share/workers/jobs/#", qos=1)
            await client.publish(status, "ready", qos=1, retain=True)
            self.ready.set()
            try:
                async with asyncio.TaskGroup() as group:
                    async for message in client.messages:
                        await self._room.acquire()
                        group.create_task(self._job(client, message))
            except* aiomqtt.MqttError as lost:
                raise lost.exceptions[0] from None
            finally:
                await client.publish(status, "gone", qos=1, retain=True, timeout=10)

    async def _job(self, client: aiomqtt.Client, message: aiomqtt.Message) -> None:
        try:
            reply = {"result": await self._handler(json.loads(bytes(message.payload)))}
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever asked is told
            reply = {"error": f"{type(error).__name__}: {error}"}
        finally:
            self._room.release()
        answer = getattr(message.properties, "ResponseTopic", None)
        if answer is None:
            _logger.warning("nobody wants to hear of the job on %s", message.topic)
            return
        properties = Properties(PacketTypes.PUBLISH)
        if (correlation := getattr(message.properties, "CorrelationData", None)) is not None:
            properties.CorrelationData = correlation
        await client.publish(answer, json.dumps(reply), qos=1, properties=properties)
