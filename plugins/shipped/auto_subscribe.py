"""auto-subscribe: subscriptions that clients have from the moment they connect, without asking for them."""

from typing import Final, Self

from pydantic import model_validator

from trunkline.config.units import Flag, TopicFilter, Whole
from trunkline.hooks import ClientInfo
from trunkline.mqtt.packets import SubscriptionRequest
from trunkline.mqtt.topics import SHARE_PREFIX
from trunkline.mqtt.versions import Version
from trunkline.plugins import Context, Settings, Table, hook, setting
from trunkline.plugins.shipped.placeholders import filled

#: Subscriptions that one client may be given.
MAX_SUBSCRIPTIONS: Final = 1000


class AutoSubscription(Table):
    """One subscription."""

    filter: TopicFilter = setting(
        ..., "Topic filter: `%c` is the client id, `%u` the user name, `%h` and `%p` are the client's address and port."
    )
    qos: Whole = setting(0, "Highest QoS of its messages.", ge=0, le=2)
    no_local: Flag = setting(False, "Whether the client gets none of its own messages. Only for 5.0.")
    retain_as_published: Flag = setting(False, "Whether messages keep the retain flag they came with. Only for 5.0.")
    retain_handling: Whole = setting(
        0, "Retained messages: 0 sends them, 1 only for a new subscription, 2 never. Only for 5.0.", ge=0, le=2
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.no_local and self.filter.startswith(SHARE_PREFIX):
            raise ValueError(f"{self.filter!r} is shared, and no_local is not for shared subscriptions")
        return self


class AutoSubscribeSettings(Settings):
    """Subscriptions that clients have from the moment they connect."""

    subscriptions: tuple[AutoSubscription, ...] = setting(
        (), "Subscriptions of each client.", max_length=MAX_SUBSCRIPTIONS
    )


class AutoSubscribe:
    def __init__(self, context: Context[AutoSubscribeSettings]) -> None:
        self._context = context
        self._made = context.counter("made", "Subscriptions that clients were given.")
        self._skipped = context.counter(
            "skipped", "Subscriptions that a client could not be given because a placeholder has no value for it."
        )

    @hook("client.connected")
    def subscribe(self, client: ClientInfo) -> None:
        """The subscriptions of a resumed session are left unchanged, and their retained messages are not sent again."""
        known = self._context.subscriptions(client.client_id)
        requests: dict[str, SubscriptionRequest] = {}
        for entry in self._context.settings.subscriptions:
            filter = filled(entry.filter, client)
            if filter is None:
                self._skipped.add()
                self._context.logger.debug(
                    "%r is not subscribed to: a placeholder has no value for this client, or one that is not "
                    "allowed there",
                    entry.filter,
                    extra={"client": client.client_id},
                )
            elif filter not in known:
                requests[filter] = _request(filter, entry, client.version)
        if requests and self._context.subscribe_client(client.client_id, *requests.values()):
            self._made.add(len(requests))


def _request(filter: str, entry: AutoSubscription, version: Version) -> SubscriptionRequest:
    """3.x has only the QoS."""
    if version is not Version.V5:
        return SubscriptionRequest(filter, entry.qos)
    return SubscriptionRequest(filter, entry.qos, entry.no_local, entry.retain_as_published, entry.retain_handling)
