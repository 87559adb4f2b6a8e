"""A plugin that authenticates: it asks a database, remembers access rights, and passes on unknown clients.

Run it with `python examples/authenticator.py`.
"""

import trio

import trunkline.testing
from trunkline.client import Client, ConnectionSettings, SubscribeRefused
from trunkline.config.units import Whole
from trunkline.hooks import ALLOW, Allow, ClientInfo, Deny
from trunkline.hooks.points import Action
from trunkline.mqtt.reasons import Reason
from trunkline.plugins import Context, Settings, hook, setting


class BadgeSettings(Settings):
    # no client gets in while the plugin should run and does not
    guards = ("client.authenticate", "client.check_acl")

    connections: Whole = setting(4, "Connections to the database.", "connections", ge=1)


async def look_up(badge: bytes) -> list[str] | None:
    await trio.lowlevel.checkpoint()  # a query over the network
    return {b"1234": ["hall", "lab"]}.get(badge)


class Badge:
    """The password is a badge, and the badge opens doors."""

    def __init__(self, context: Context[BadgeSettings]) -> None:
        self.limit = trio.CapacityLimiter(context.settings.connections)

    @hook("client.authenticate")
    async def authenticate(self, client: ClientInfo, password: bytes | None) -> Allow | Deny | None:
        if password is None:
            return None
        with trio.move_on_after(5):
            async with self.limit:
                doors = await look_up(password)
            if doors is None:
                return Deny(Reason.BAD_USER_NAME_OR_PASSWORD)
            client.attributes["badge.doors"] = doors
            return ALLOW
        return Deny(Reason.SERVER_UNAVAILABLE)

    @hook("client.check_acl")
    def check_acl(self, client: ClientInfo, action: Action, topic: str, qos: int, retain: bool) -> Allow | Deny | None:
        doors = client.attributes.get("badge.doors")
        if not isinstance(doors, list) or not topic.startswith("doors/"):
            return None
        return ALLOW if topic.removeprefix("doors/") in doors else Deny()


async def main() -> None:
    async with trunkline.testing.broker() as broker:
        await broker.plugins.enable("badge", factory=Badge)
        visitor = ConnectionSettings(username="visitor", password="1234")
        async with Client(visitor, open_stream=broker.connect) as client:
            for door in ("doors/lab", "doors/safe"):
                try:
                    await client.subscribe(door)
                    print("subscribed to", door)
                except SubscribeRefused as refused:
                    print(refused)


if __name__ == "__main__":
    trio.run(main)
