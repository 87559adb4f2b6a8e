"""Use a broker without pytest, for the length of a block.

Run it with `python examples/test_unittest.py`.
"""

import unittest

from paho.mqtt import publish

import trunkline.testing


class Greetings(unittest.TestCase):
    def setUp(self) -> None:
        self.broker = self.enterContext(trunkline.testing.broker(mqtt={"max_qos": 1}))

    def test_hello(self) -> None:
        publish.single("greeting", "hello", qos=1, port=self.broker.port)
        self.broker.wait_for("greeting", payload="hello")


class AsyncGreetings(unittest.IsolatedAsyncioTestCase):
    async def test_hello(self) -> None:
        async with trunkline.testing.broker() as broker:
            broker.publish("greeting", "hello", retain=True)
            await broker.wait_for("greeting", payload="hello")


if __name__ == "__main__":
    unittest.main()
