"""Whose right it is to say what becomes of a stream's messages.

What a stream takes from another one, keeps under another topic, or publishes once more, others may read there who may
not read it here. So who says so needs the right to subscribe to it, and to publish where it is published.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline.broker.session.access import Question
from trunkline.nats.jetstream.replies import ApiError
from trunkline.streams.reach import contents, wanted

if TYPE_CHECKING:
    from trunkline.broker.nats.jetstream.asker import Asker
    from trunkline.streams.config import StreamConfig
    from trunkline.streams.registry import StreamRegistry


async def check_shapes(
    registry: StreamRegistry, asker: Asker, config: StreamConfig, known: StreamConfig | None
) -> None:
    """`known` is the configuration that the stream has: what it says already need not be allowed again.

    Raises:
        ApiError: the asker may not say so.
    """
    shapes = (config.filters, config.origins, config.transform, config.republish)
    if known is not None and shapes == (known.filters, known.origins, known.transform, known.republish):
        return
    for origin in config.origins:
        await asker.check_filters(wanted(origin, registry.config))
    if config.transform is not None or config.republish is not None:
        await asker.check_filters(contents(config, registry.config))
    if config.republish is not None:
        target = config.republish.change.filter
        access, client = asker.standing.services.access, asker.standing.client
        if await access.refusal(Question(client, "publish", target)) is not None:
            raise ApiError(403, 0, f"permissions violation for publish to {target!r}")
