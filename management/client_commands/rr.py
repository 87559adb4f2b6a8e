"""`trunkline rr`: publishes a request, and prints the responses."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import click
import trio

from trunkline.management.client_commands.ending import TIMED_OUT, run
from trunkline.management.client_commands.options import ClientCommand, connecting, connection_options, read_topic
from trunkline.management.client_commands.output import MessageOutput, format_options, next_burst
from trunkline.management.client_commands.payloads import one_payload, payload_options
from trunkline.management.client_commands.property_options import property_option
from trunkline.management.command_line import read_duration
from trunkline.mqtt.reasons import Reason
from trunkline.mqtt.versions import Version

if TYPE_CHECKING:
    from trunkline.client.block import BlockClient
    from trunkline.client.received import ReceivedMessage
    from trunkline.client.receivers import Receiver
    from trunkline.management.client_commands.options import ConnectionOptions
    from trunkline.management.client_commands.property_options import GivenProperties
    from trunkline.mqtt.properties import Properties


@dataclass(frozen=True, slots=True)
class RequestOptions:
    topic: str
    payload: bytes
    qos: int
    response_topic: str | None
    responses: int
    seconds: float
    fresh_only: bool


@click.command(cls=ClientCommand)
@click.option("-t", "--topic", callback=read_topic, metavar="TOPIC", help="Topic of the request.")
@click.option(
    "-e", "response_topic", callback=read_topic, metavar="TOPIC", help="Topic of the responses. [default: one for this]"
)
@payload_options
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True, help="QoS of both.")
@click.option("-C", "count", type=click.IntRange(1), default=1, show_default=True, help="End after so many responses.")
@click.option("-W", "limit", callback=read_duration, default="0", metavar="SECONDS", help="End after so long: code 27.")
@click.option("-R", "fresh_only", is_flag=True, help="Do not take retained messages for responses.")
@format_options
@property_option("connect", "publish", "subscribe", "disconnect", "will")
@connection_options
def rr(
    topic: str | None,
    response_topic: str | None,
    qos: int,
    count: int,
    limit: float,
    fresh_only: bool,
    properties: GivenProperties,
    **options: Any,
) -> None:
    """Publish a request, and print the responses."""
    to = connecting(options, properties, request_response_information=response_topic is None)
    topic = topic or to.topic
    if topic is None:
        raise click.UsageError("there is no topic: -t")
    if response_topic is None and to.settings.version is not Version.V5:
        raise click.UsageError(f"a request of MQTT {to.settings.version} does not say where responses go: -e")
    payload = one_payload(options) or b""
    request = RequestOptions(topic, payload, qos, response_topic, count, limit or inf, fresh_only)
    output = MessageOutput.of(options, to.reports)
    run(lambda: _request(to, request, output), quiet=to.quiet)


async def _request(to: ConnectionOptions, request: RequestOptions, output: MessageOutput) -> int:
    async with to.client() as client:
        to.opened(client)
        with trio.move_on_after(request.seconds) as limit:
            where = request.response_topic or _inbox(client)
            properties: Properties = {**to.properties["publish"]}
            if to.settings.version is Version.V5:
                properties.setdefault("response_topic", where)
                properties.setdefault("correlation_data", token_hex(8).encode())
            responses = await client.subscribe(
                where, qos=request.qos, properties=to.properties["subscribe"], manual_ack=True
            )
            reason = await client.publish(request.topic, request.payload, qos=request.qos, properties=properties)
            if reason == Reason.NO_MATCHING_SUBSCRIBERS:
                to.reports.warn(f"nobody is subscribed to {request.topic}")
            await _print(responses, properties.get("correlation_data"), request, output)
        await to.close(client)
    return TIMED_OUT if limit.cancelled_caught else 0


def _inbox(client: BlockClient) -> str:
    """Where the server lets this client get responses, or anywhere."""
    base = client.connack.properties.get("response_information", "responses").rstrip("/")
    return f"{base}/{token_hex(8)}"


async def _print(
    responses: Receiver, correlation: bytes | None, request: RequestOptions, output: MessageOutput
) -> None:
    def is_response(message: ReceivedMessage) -> bool:
        """Many responders do not return the correlation data; those of another request do."""
        if request.fresh_only and message.retain:
            return False
        return message.properties.get("correlation_data", correlation) == correlation

    left = request.responses
    while left and (burst := await next_burst(responses, left)):
        found = [each for each in burst if is_response(each)]
        left -= len(found)
        await output.print(found)
        for message in burst:
            message.ack()
