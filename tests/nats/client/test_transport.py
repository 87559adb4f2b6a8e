import ssl
from pathlib import Path

import pytest
import trustme

from tests.nats.servers import KINDS, running
from trunkline.nats import connect
from trunkline.nats.errors import ConnectFailed


@pytest.mark.parametrize("is_first", [False, True])
async def test_tls(tmp_path: Path, is_first: bool) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "pair.pem")
    first = "handshake_first: true" if is_first else ""
    (tmp_path / "conf").write_text(
        f'tls {{ cert_file: "{tmp_path}/pair.pem", key_file: "{tmp_path}/pair.pem", {first} }}'
    )
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    with running(KINDS[0], tmp_path, "-c", str(tmp_path / "conf")) as server:
        for url in (server.url, server.url.replace("nats:", "tls:")):
            async with connect(url, tls=trusting, tls_first=is_first) as client:
                with client.subscribe("a") as some:
                    await client.publish("a", bytes(500_000))
                    assert len((await some.receive()).payload) == 500_000
                with client.subscribe("b") as asked:
                    async with client.request_many("b", max_answers=1) as answers:
                        (await asked.receive()).respond(b"x")
                        assert [each.payload async for each in answers] == [b"x"]
                await client.flush()
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            async with connect(server.url, tls_first=is_first):
                pass
