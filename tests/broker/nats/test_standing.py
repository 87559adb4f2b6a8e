"""Who a client is."""

from tests.broker.nats.speaking import nats_room


async def test_it_has_what_its_login_and_its_listener_give_it() -> None:
    zones = {"slow": {"max_queue_bytes": "256KiB"}}
    async with nats_room(listener={"zone": "slow"}, zones=zones) as here:
        await here.speaker(name="service", lang="python3", version="2.16.0", echo=False)
        client = here.connection.client
        assert client is not None
        standing = client.standing
        assert standing.client.attributes == {"nats.name": "service", "nats.library": "python3 2.16.0"}
        assert not standing.terms.echo
        assert standing.config.queue_bytes == 262_144
        assert standing.pressure.high_bytes == 65_536
        assert (standing.subscriber.online, standing.subscriber.durable) == (True, False)
        assert standing.session.expiry_interval == 0
