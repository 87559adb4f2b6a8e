"""Keys that are published at a URL: fetched periodically; if that fails, the last ones are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from trunkline.plugins.shipped.http_client import HttpFailure
from trunkline.plugins.shipped.jwt_keys import KeyProblem, from_jwks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.plugins import Context
    from trunkline.plugins.shipped.http_client import HttpClient
    from trunkline.plugins.shipped.jwt_keys import KeySet


class PublishedKeys:
    """Only `run` fetches. A login that needs a missing key waits for it."""

    def __init__(
        self,
        context: Context[Any],
        client: HttpClient,
        url: str,
        algorithms: Iterable[str],
        *,
        refresh: float,
        floor: float,
    ) -> None:
        """`refresh` is the time between two fetches, `floor` the minimum time between two requested ones, both in
        seconds."""
        self._context = context
        self._client = client
        self._url = url
        self._algorithms = tuple(algorithms)
        self._refresh = refresh
        self._floor = floor
        #: The last keys that could be fetched, perhaps by an earlier run of the plugin.
        self.keys: KeySet | None = self._usable(context.kept.get("keys", {}).get(url))
        self._fetched_at = float("-inf")
        self._wanted = trio.Event()
        self._fetched = trio.Event()
        self._fetches = context.counter("jwks.fetched", "Sets of keys fetched.")
        self._failures = context.counter("jwks.failed", "Fetches of keys that failed.")

    async def run(self) -> None:
        while True:
            await self._fetch()
            due = self._context.now + (self._refresh if self.keys is not None else self._floor)
            with trio.move_on_at(due):
                await self._wanted.wait()

    async def newer(self) -> None:
        """Request a fetch and wait for it; it is skipped if the last one was a moment ago."""
        if self._context.now < self._fetched_at + self._floor:
            return
        self._wanted.set()
        await self._fetched.wait()

    def _usable(self, keys: KeySet | None) -> KeySet | None:
        return keys.limited(self._algorithms) if keys is not None and self._algorithms else keys

    async def _fetch(self) -> None:
        try:
            answer = await self._client.request("GET", self._url)
            if answer.status != 200:
                raise HttpFailure(f"it answers with status {answer.status}")
            keys = from_jwks(answer.body)
            self._context.kept["keys"] = {self._url: keys}
            self.keys = self._usable(keys)
        except (HttpFailure, KeyProblem) as error:
            self._failures.add()
            kept = "the last ones stay in force" if self.keys is not None else "no token can be verified"
            self._context.logger.warning("no keys from %s: %s; %s", self._url, error, kept)
            self._context.raise_alarm("jwks", f"no keys from {self._url}: {error}; {kept}")
        else:
            self._fetches.add()
            self._context.clear_alarm("jwks")
        self._fetched_at = self._context.now
        # requests that came meanwhile are fulfilled
        self._wanted = trio.Event()
        done, self._fetched = self._fetched, trio.Event()
        done.set()
