"""The order in which callbacks of the broker, its plugins and the testing kit run, where it matters: higher priorities
first.

A callback that is registered without a priority runs at 0.
"""

from sys import maxsize
from typing import Final

#: The trace of messages: it sees each message before anybody else changes it.
TRACE: Final = maxsize
#: Refusals that a test asks for.
TEST_REFUSAL: Final = 2_000_000
#: Denials in place of a deciding plugin that should run and does not, before anything is allowed.
GUARD: Final = 1_000_000
#: Records of what happens, before a callback can end the chain.
RECORD: Final = 1_000_000
#: Bans, before any password is verified.
BANS: Final = 900_000
#: The passwords of client ids, which are demanded whoever else would let the client in.
CLIENT_IDS: Final = 800_000
#: Faults that clients request: they take effect in any configuration.
FAULTS: Final = 100_000
#: Rewritten topic names, which all later callbacks see.
REWRITE: Final = 3000
#: Syntax in a topic that is meant for one plugin alone: removed before others see the topic.
TOPIC_SYNTAX: Final = 2000
#: Observers of decisions, before a decision ends the chain.
WATCH: Final = 1000
#: The final topic filter of a subscription, before it is granted.
EXCLUSIVE: Final = 1000
#: Rules that came with a login, before a service is queried, which takes time.
LOGIN_RULES: Final = 1
#: Checks of the message as it will be routed, after all that rewrites it.
VALIDATION: Final = -1000
#: Records of the value that all other callbacks have produced.
RECORD_RESULT: Final = -1_000_000
#: Password files and access rules: hooks and plugins decide before them.
CONFIGURATION: Final = -1_000_000
