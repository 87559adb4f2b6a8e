"""A plugin that disconnects clients that have published nothing for too long. plugin_away_test.py tests it."""

import trio

from trunkline.config.units import Duration
from trunkline.hooks import ClientInfo
from trunkline.mqtt.message import Message
from trunkline.plugins import Context, Settings, hook, setting


class AwaySettings(Settings):
    after: Duration = setting(3600.0, "Time without a message.", "seconds", gt=0)


class Away:
    """Disconnects clients that publish nothing."""

    def __init__(self, context: Context[AwaySettings]) -> None:
        self.context = context
        #: When each client published last.
        self.last: dict[str, float] = {}
        context.gauge("watched", "Clients that are watched.", lambda: len(self.last))
        context.command("last", self.list_last)

    async def start(self) -> None:
        """Clients may be connected before the plugin starts."""
        self.last = {client.client_id: self.context.now for client in self.context.all_clients()}

    async def run(self) -> None:
        while True:
            await trio.sleep(self.context.settings.after / 10)
            before = self.context.now - self.context.settings.after
            for client_id in [client_id for client_id, at in self.last.items() if at <= before]:
                if not self.context.kick(client_id, text="you said nothing"):
                    del self.last[client_id]  # it is gone already

    @hook("client.connected")
    def arrive(self, client: ClientInfo) -> None:
        self.last[client.client_id] = self.context.now

    @hook("message.publish")
    def hear(self, client: ClientInfo, message: Message) -> None:
        self.last[client.client_id] = self.context.now

    def list_last(self) -> list[dict[str, object]]:
        """`trunkline ctl plugins call away last`"""
        now = self.context.now
        return [{"client_id": name, "silent": now - at} for name, at in self.last.items()]
