"""What the routing layer holds, as rows: routes, the receivers of a topic, and retained messages."""

from __future__ import annotations

from operator import attrgetter
from sys import maxsize
from typing import TYPE_CHECKING, Final

import trio

from trunkline.broker.views import HEAD, ReceiverRow, RouteRow, retained_row, subscription_row
from trunkline.mqtt.topics import SHARE_PREFIX

if TYPE_CHECKING:
    from trunkline.broker.pubsub import PubSub
    from trunkline.broker.routes import Subscriber
    from trunkline.broker.views import RetainedRow, SubscriptionRow
    from trunkline.mqtt.message import Message
    from trunkline.router import Router

#: Topics that are looked at before other work gets its turn.
SEEN_AT_ONCE: Final = 500


class Routes:
    def __init__(self, router: Router[Subscriber]) -> None:
        self._router = router

    def page(self, after: str, limit: int) -> list[RouteRow]:
        """The next topic filters with subscriptions behind this one."""
        return [RouteRow(filter, self._router.count(filter)) for filter in self._router.page(after, limit)]

    def receivers(self, topic: str, after: int, limit: int) -> list[ReceiverRow]:
        """Who would get a message with this topic: the next ones behind the first `after`, clients as they subscribed,
        then those that get it from a backlog, then shared groups."""
        route = self._router.match(topic)
        targets = route.targets + route.behind
        rows = [
            ReceiverRow(target.subscriber.client_id, "", target.qos, target.subscriber.online, 1)
            for target in targets[after : after + limit]
        ]
        begin = max(0, after - len(targets))
        for group in route.groups[begin : begin + limit - len(rows)]:
            members = list(group)
            online = any(member.subscriber.online for member in members)
            qos = max((member.qos for member in members), default=0)
            rows.append(ReceiverRow("", f"{SHARE_PREFIX}{group.name}/{group.filter}", qos, online, len(members)))
        return rows

    def subscriptions(self) -> list[SubscriptionRow]:
        """All, by topic filter and client id."""
        every = self._router.all()
        rows = [subscription_row(filter, each.subscriber.client_id, each.options) for filter, each in every]
        return sorted(rows, key=attrgetter("filter", "client_id"))


class RetainedMessages:
    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub
        self._retained = pubsub.retained

    def get(self, topic: str) -> RetainedRow | None:
        """With its whole payload."""
        now = trio.current_time()
        found = self._retained.get(topic, now)
        return None if found is None else retained_row(found, self._retained, now)

    def is_kept(self, message: Message) -> bool:
        """Whether it is this message that its topic retains."""
        kept = self._retained.get(message.topic, trio.current_time())
        return kept is not None and kept.guid == message.guid

    def all(self) -> list[RetainedRow]:
        """By topic, with their whole payloads."""
        now = trio.current_time()
        found, _ = self._retained.page(now, limit=maxsize, scan=maxsize)
        return [retained_row(each, self._retained, now) for each in found]

    def topics(self, after: str, limit: int) -> list[str]:
        """The next ones, of `limit` that are looked at."""
        return [
            each.topic for each in self._retained.page(trio.current_time(), after=after, limit=limit, scan=limit)[0]
        ]

    async def page(self, filter: str, after: str, limit: int) -> tuple[list[RetainedRow], str | None]:
        """The next ones that match behind the topic `after`, with the beginnings of their payloads; and where the next
        page begins, None at the end."""
        rows: list[RetainedRow] = []
        cursor: str | None = after
        while cursor is not None and len(rows) < limit:
            now, room = trio.current_time(), limit - len(rows)
            found, cursor = self._retained.page(now, after=cursor, limit=room, filter=filter, scan=SEEN_AT_ONCE)
            rows += [retained_row(each, self._retained, now, HEAD) for each in found]
            await trio.lowlevel.checkpoint()
        return rows, cursor

    def delete(self, topic: str) -> bool:
        """Nobody is told. False: there was none."""
        is_there = self._retained.get(topic, trio.current_time()) is not None
        if is_there:
            self._pubsub.delete_retained([topic])
        return is_there

    async def delete_matching(self, filter: str) -> int:
        """How many that were."""
        deleted = 0
        cursor: str | None = ""
        while cursor is not None:
            found, cursor = self._retained.page(
                trio.current_time(), after=cursor, limit=SEEN_AT_ONCE, filter=filter, scan=SEEN_AT_ONCE
            )
            self._pubsub.delete_retained([each.topic for each in found])
            deleted += len(found)
            await trio.lowlevel.checkpoint()
        return deleted
