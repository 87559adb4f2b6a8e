"""A supervisor restarts a store that crashes, and gives up when that happens too often.

Run it with `python examples/actors_supervision.py`.
"""

import logging

import trio

from trunkline import actors
from trunkline.actors import Actor, Child, Reason, Restart, Supervisor, TooManyRestarts


class Store(Actor[tuple[str, int]]):
    """Opening and closing take time, so they belong in `setup` and `teardown`."""

    async def setup(self) -> None:
        await trio.sleep(0.1)
        self.rows: dict[str, int] = {}
        print("store is open")

    async def teardown(self, reason: Reason) -> None:
        await trio.sleep(0.1)
        print("store is closed:", "normal" if reason is None else repr(reason))

    def handle(self, message: tuple[str, int]) -> None:
        name, value = message
        if value < 0:
            raise ValueError(f"{name} is negative")
        self.rows[name] = value

    def handle_call(self, request: object) -> int | None:
        return self.rows.get(str(request))


class Sensor(Actor[None]):
    """Has a task of its own, which ends with it."""

    def __init__(self, plant: Supervisor) -> None:
        self.plant = plant

    def init(self) -> None:
        self.start_task(self.measure)

    async def measure(self) -> None:
        for value in (20, -1, 21, -1):
            self.plant["store"].cast(("temperature", value))  # a new reference after a restart
            await trio.sleep(1)


async def main() -> None:
    def start_plant() -> Supervisor:
        # Started left to right, stopped right to left.
        plant = Supervisor(
            Child("store", Store, shutdown=2),
            Child("sensor", lambda: Sensor(plant), Restart.TRANSIENT),
            intensity=1,
            period=60,
            name="plant",
        )
        return plant

    try:
        async with actors.system(Child("plant", start_plant), intensity=0):
            await trio.sleep_forever()
    except TooManyRestarts as error:
        print(error)


if __name__ == "__main__":
    logging.getLogger("trunkline.actors").setLevel(logging.CRITICAL)  # these crashes are meant to happen
    trio.run(main)
