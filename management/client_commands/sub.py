"""`trunkline sub`: prints messages."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from sys import maxsize
from typing import TYPE_CHECKING, Any

import click
import trio

from trunkline.client.errors import ClientError, SessionLost
from trunkline.management.client_commands.ending import TIMED_OUT, run
from trunkline.management.client_commands.options import (
    RETRY,
    ClientCommand,
    connecting,
    connection_options,
    read_filters,
)
from trunkline.management.client_commands.output import MAX_BURST, MessageOutput, format_options, next_burst
from trunkline.management.client_commands.property_options import property_option
from trunkline.management.command_line import read_duration
from trunkline.mqtt.topics import matches, plain_filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trunkline.client.block import BlockClient
    from trunkline.client.received import ReceivedMessage
    from trunkline.management.client_commands.options import ConnectionOptions
    from trunkline.management.client_commands.property_options import GivenProperties


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """What is subscribed, and which messages are printed."""

    filters: Sequence[str]
    unsubscribe: Sequence[str]
    excluded: Sequence[str]
    qos: int
    count: int | None
    fresh_only: bool
    retained_only: bool
    remove_retained: bool
    retain_as_published: bool
    #: Nothing is printed.
    subscribe_only: bool


@click.command(cls=ClientCommand)
@click.option("-t", "--topic", "filters", multiple=True, callback=read_filters, metavar="FILTER", help="Subscribe.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="QoS of the subscriptions.")
@click.option("-C", "count", type=click.IntRange(1), metavar="COUNT", help="End after so many messages.")
@click.option("-W", "limit", callback=read_duration, default="0", metavar="SECONDS", help="End after so long: code 27.")
@click.option("-E", "subscribe_only", is_flag=True, help="End when the subscriptions are acknowledged.")
@click.option("-R", "fresh_only", is_flag=True, help="Do not print retained messages.")
@click.option("--retained-only", is_flag=True, help="Print retained messages, and end at the first other one.")
@click.option("--remove-retained", is_flag=True, help="Remove the retained messages that come from the server.")
@click.option("--retain-as-published", is_flag=True, help="Keep the retain flag of the publisher (5.0).")
@click.option(
    "-T", "--filter-out", "excluded", multiple=True, callback=read_filters, metavar="FILTER", help="Do not print these."
)
@click.option("-U", "--unsubscribe", multiple=True, callback=read_filters, metavar="FILTER", help="Unsubscribe.")
@click.option("--reconnect", is_flag=True, help="Subscribe again when the session is lost: messages may be missing.")
@format_options
@property_option("connect", "subscribe", "unsubscribe", "disconnect", "will")
@connection_options
def sub(
    filters: tuple[str, ...],
    qos: int,
    count: int | None,
    limit: float,
    subscribe_only: bool,
    fresh_only: bool,
    retained_only: bool,
    remove_retained: bool,
    retain_as_published: bool,
    excluded: tuple[str, ...],
    unsubscribe: tuple[str, ...],
    reconnect: bool,
    properties: GivenProperties,
    **options: Any,
) -> None:
    """Print the messages of topic filters."""
    to = connecting(options, properties)
    if to.topic is not None:
        filters += tuple(read_filters(click.get_current_context(), _parameter("filters"), [to.topic]))
    if not filters and not unsubscribe and to.settings.clean_start:
        raise click.UsageError("there is nothing to subscribe: -t")
    if fresh_only and retained_only:
        raise click.UsageError("-R and --retained-only exclude each other")
    wanted = SubscribeOptions(
        filters,
        unsubscribe,
        excluded,
        qos,
        count,
        fresh_only,
        retained_only,
        remove_retained,
        retain_as_published,
        subscribe_only,
    )
    printing = _Printing(to, wanted, MessageOutput.of(options, to.reports), limit or inf)
    run(printing.again_and_again if reconnect else printing.once, quiet=to.quiet)


def _parameter(name: str) -> click.Parameter:
    return next(each for each in sub.params if each.name == name)


class _Printing:
    def __init__(self, to: ConnectionOptions, wanted: SubscribeOptions, output: MessageOutput, seconds: float) -> None:
        self._to = to
        self._wanted = wanted
        self._output = output
        self._left = maxsize if wanted.count is None else wanted.count
        self._seconds = seconds
        #: From the first connection on.
        self._limit = trio.CancelScope()
        self._was_open = False

    async def once(self) -> int:
        with self._limit:
            await self._session()
        return TIMED_OUT if self._limit.cancelled_caught else 0

    async def again_and_again(self) -> int:
        """With a new session when one is lost."""
        attempt, was_ever_open = 0, False
        with self._limit:
            while True:
                self._was_open = False
                try:
                    await self._session()
                    break
                except ClientError as error:
                    was_ever_open = was_ever_open or self._was_open
                    attempt = 1 if self._was_open else attempt + 1
                    delay = 0.0 if isinstance(error, SessionLost) else RETRY.should_retry(attempt, error)
                    if not was_ever_open or delay is None:
                        raise
                    self._to.reports.warn(f"{error}; subscribing again")
                    await trio.sleep(delay)
        return TIMED_OUT if self._limit.cancelled_caught else 0

    async def _session(self) -> None:
        to, wanted = self._to, self._wanted
        client = to.client()
        # before the connection: a session that is resumed delivers at once, and perhaps from filters of before
        receiver = client.receive_from("#", "$SYS/#", *wanted.filters, manual_ack=True)
        async with client:
            self._was_open = True
            to.opened(client)
            self._limit.deadline = min(self._limit.deadline, trio.current_time() + self._seconds)
            if wanted.filters:
                subscription = await client.subscribe(
                    *wanted.filters,
                    qos=wanted.qos,
                    retain_as_published=wanted.retain_as_published,
                    properties=to.properties["subscribe"],
                )
                for each, granted in subscription.granted.items():
                    to.reports.debug(f"subscribed to {each} at QoS {granted}")
                subscription.close()  # the messages come to `receiver`
            if wanted.unsubscribe:
                await client.unsubscribe_from(*wanted.unsubscribe, properties=to.properties["unsubscribe"])
            while not wanted.subscribe_only and (burst := await next_burst(receiver, min(MAX_BURST, self._left))):
                if not await self._print(client, burst):
                    break
            await to.close(client)

    async def _print(self, client: BlockClient, burst: list[ReceivedMessage]) -> bool:
        """Whether to go on. A message is acknowledged when it is printed."""
        wanted = self._wanted
        last = next((number for number, each in enumerate(burst) if wanted.retained_only and not each.retain), None)
        burst = burst[:last]
        found = [each for each in burst if not any(matches(plain_filter(one), each.topic) for one in wanted.excluded)]
        receipts = [
            client.publish_nowait(each.topic, b"", qos=1, retain=True)
            for each in found
            if wanted.remove_retained and each.retain
        ]
        shown = [each for each in found if not (wanted.fresh_only and each.retain)]
        self._left -= len(shown)
        await self._output.print(shown)
        for message in burst:
            message.ack()
        for receipt in receipts:
            await receipt.wait()
        return last is None and self._left > 0
