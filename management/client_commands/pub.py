"""`trunkline pub`: publishes messages, and waits until the server has taken them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click
import trio

from trunkline.client.errors import ClientError, PublishesRefused, PublishRefused
from trunkline.management.client_commands.ending import REQUEST_REFUSED, run
from trunkline.management.client_commands.options import ClientCommand, connecting, connection_options, read_topic
from trunkline.management.client_commands.payloads import LineReader, one_payload, payload_options
from trunkline.management.client_commands.progress import show_progress
from trunkline.management.client_commands.property_options import property_option
from trunkline.management.command_line import read_duration

if TYPE_CHECKING:
    from trunkline.client.block import BlockClient
    from trunkline.management.client_commands.options import ConnectionOptions
    from trunkline.management.client_commands.property_options import GivenProperties

#: Repetitions that are published together, at most, and their bytes.
MAX_BURST: Final = 1000
MAX_BURST_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class PublishOptions:
    topic: str
    qos: int
    retain: bool
    #: None: the lines of standard input.
    payload: bytes | None
    repeat: int
    delay: float


@click.command(cls=ClientCommand)
@click.option("-t", "--topic", callback=read_topic, metavar="TOPIC", help="Topic of the messages.")
@payload_options
@click.option("-l", "--stdin-line", "lines", is_flag=True, help="Publish each line of standard input.")
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="QoS of the messages.")
@click.option("-r", "--retain", is_flag=True, help="The server retains the message.")
@click.option("--repeat", type=click.IntRange(1), default=1, metavar="COUNT", help="Publish the message so often.")
@click.option(
    "--repeat-delay", callback=read_duration, default="0", metavar="SECONDS", help="Wait between repetitions."
)
@click.option("--topic-alias", is_flag=True, help="Send the topic once, then an alias (5.0), if the server takes it.")
@property_option("connect", "publish", "disconnect", "will")
@connection_options
def pub(
    topic: str | None,
    qos: int,
    retain: bool,
    lines: bool,
    repeat: int,
    repeat_delay: float,
    topic_alias: bool,
    properties: GivenProperties,
    **options: Any,
) -> None:
    """Publish messages, and wait until the server has taken them."""
    # what is sent at once and not acknowledged has nothing to resume, and a full store makes no session
    survives = qos > 0 or lines or repeat_delay > 0
    to = connecting(options, properties, survives=survives, **({"topic_aliases_out": 1} if topic_alias else {}))
    topic = topic or to.topic
    if topic is None:
        raise click.UsageError("there is no topic: -t")
    if lines and repeat > 1:
        raise click.UsageError("-l and --repeat exclude each other")
    payload = one_payload({**options, "lines": lines}, others=lines)
    publishing = _Publishing(to, PublishOptions(topic, qos, retain, payload, repeat, repeat_delay))
    run(publishing.run, quiet=to.quiet)


class _Publishing:
    def __init__(self, to: ConnectionOptions, outgoing: PublishOptions) -> None:
        self._to = to
        self._outgoing = outgoing
        self._properties = to.properties["publish"]
        #: Messages that the server has taken.
        self._taken = 0
        self._refused = 0

    async def run(self) -> int:
        client = self._to.client()
        try:
            async with client:
                self._to.opened(client)
                async with trio.open_nursery() as nursery:
                    if not self._to.quiet:
                        nursery.start_soon(show_progress, lambda: self._taken)
                    await self._publish(client, nursery)
                    nursery.cancel_scope.cancel()
                await self._to.close(client)
        except ClientError:
            if self._taken:
                self._to.reports.warn(f"the server has taken {self._taken:,} messages")
            raise
        return REQUEST_REFUSED if self._refused else 0

    async def _publish(self, client: BlockClient, nursery: trio.Nursery) -> None:
        out = self._outgoing
        if out.payload is None:
            reader = LineReader()
            nursery.start_soon(reader.run)
            while lines := await reader.lines():
                await self._burst(client, lines)
        elif out.repeat == 1 or out.delay:
            for number in range(out.repeat):
                if number:
                    await trio.sleep(out.delay)
                await self._one(client, out.payload)
        else:
            most = max(1, min(MAX_BURST, MAX_BURST_BYTES // (len(out.payload) or 1)))
            for start in range(0, out.repeat, most):
                await self._burst(client, [out.payload] * min(most, out.repeat - start))

    async def _one(self, client: BlockClient, payload: bytes) -> None:
        out = self._outgoing
        try:
            await client.publish(out.topic, payload, qos=out.qos, retain=out.retain, properties=self._properties)
        except PublishRefused as error:
            self._refuse(error, 1)
        else:
            self._taken += 1

    async def _burst(self, client: BlockClient, payloads: list[bytes]) -> None:
        out = self._outgoing
        try:
            await client.publish_many(out.topic, payloads, qos=out.qos, retain=out.retain, properties=self._properties)
        except PublishesRefused as error:
            self._refuse(error, len(error.refused))
            self._taken += len(payloads) - len(error.refused)
        else:
            self._taken += len(payloads)

    def _refuse(self, error: ClientError, count: int) -> None:
        """The other messages are published."""
        self._refused += count
        self._to.reports.error(error)
