"""A client with TLS, a password file and a will, here with a broker in the same process.

Run it with `python examples/client_tls.py`.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from trunkline import testing
from trunkline.client import ConnectionSettings, SessionClient, WillMessage


async def main(folder: Path) -> None:
    secret = folder / "password"
    secret.write_text("correct horse\n")
    async with testing.broker(listeners=["tls://127.0.0.1:0"]) as broker:
        settings = ConnectionSettings(
            transport="tls",
            host=broker.host,
            port=broker.port,
            client_id="pump",
            username="pump",
            password_file=secret,  # read at each attempt to connect, as the certificates are
            ca_file=broker.certificates.authority,
            will=WillMessage(topic="status/pump", payload="lost", qos=1, retain=True),
        )
        async with SessionClient(settings) as client:
            await client.publish("status/pump", "here", qos=1, retain=True)
            print("connected to", client.settings.transport, "as", client.settings.username)
            # An orderly end does not publish the will: say yourself that you leave
            await client.publish("status/pump", "away", qos=1, retain=True)
        print(broker.messages[-1].payload.decode())


if __name__ == "__main__":
    with TemporaryDirectory() as name:
        trio.run(main, Path(name))
