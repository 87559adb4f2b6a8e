"""A device asks by MQTT and a service answers by NATS, here with a broker in the same process.

Run it with `python examples/mqtt_and_nats.py`.
"""

import trio

from trunkline import nats, testing
from trunkline.client import Client

CORRELATION = "Mqtt-Correlation-Data"


async def serve(service: nats.Client, task_status: trio.TaskStatus[None]) -> None:
    with service.subscribe("plant.*.limit", queue="limits") as asked:
        await service.flush()  # the broker knows of the subscription
        task_status.started()
        async for request in asked:
            machine = request.subject.split(".")[1]
            message_id = {name: request.headers[name] for name in (CORRELATION,) if name in request.headers}
            request.respond(f"{machine}: 80 °C".encode(), headers=message_id)


async def main() -> None:
    async with (
        testing.broker(listeners=["nats://127.0.0.1:0"]) as broker,
        nats.connect(broker.url) as service,
        Client(open_stream=broker.connect) as device,
        trio.open_nursery() as nursery,
    ):
        await nursery.start(serve, service)
        response = await device.request("plant/press/limit", "", timeout=5)
        print("the device gets", response.text)

        with service.subscribe("plant.>") as readings:
            await service.flush()
            await device.publish("plant/press/temp.oil", "71.5")
            reading = await readings.receive()
            print(reading.subject, "has", reading.payload.decode())
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
