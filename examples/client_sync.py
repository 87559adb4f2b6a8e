"""The client in a script that does not await, here with a broker in the same process.

Run it with `python examples/client_sync.py`.
"""

from trunkline import testing
from trunkline.client import ConnectionSettings
from trunkline.client.sync import SessionClient


def main() -> None:
    with testing.broker(listeners=[{"url": "tcp://127.0.0.1:0"}]) as broker:
        settings = ConnectionSettings.from_url(broker.url, client_id="garden")
        with (
            SessionClient(settings, retry_first=True) as client,
            client.subscribe("garden/#", qos=1, timeout=5) as messages,
        ):
            client.publish("garden/door", "open", qos=1, timeout=5)
            broker.faults.cut(client="garden")
            client.publish("garden/lamp", "on", qos=2)  # waits for the next connection
            for message in messages:
                print(message.topic, message.text)
                if message.topic == "garden/lamp":
                    break


if __name__ == "__main__":
    main()
