"""The order in which callbacks of the broker, of its plugins and of its testing kit run, where it matters: higher
first.

A callback that is registered without a priority runs at 0.
"""

from sys import maxsize
from typing import Final

#: The trace of messages: it sees each message before anybody else changes it.
TRACE: Final = maxsize
#: Refusals that a test asks for.
TEST_REFUSAL: Final = 2_000_000
#: Denials in place of a plugin that should decide and does not run, before anything is allowed.
GUARD: Final = 1_000_000
#: Records of what happens, before a callback can end the chain.
RECORD: Final = 1_000_000
#: Faults that clients ask for: they show however the broker is set up.
FAULTS: Final = 100_000
#: Before any password is looked at.
BANS: Final = 10_000
#: Rewritten topic names, which all later callbacks see.
REWRITE: Final = 3000
#: Syntax in a topic that is for one plugin alone: taken off before others see the topic.
TOPIC_SYNTAX: Final = 2000
#: Observers of decisions, before one ends the chain.
WATCH: Final = 1000
#: As it is subscribed to in the end, but before others grant it.
EXCLUSIVE: Final = 1000
#: Rules that came with a login, before a service is asked, which takes time.
LOGIN_RULES: Final = 1
#: Checks of the message as it will be routed, after all that rewrites it.
VALIDATION: Final = -1000
#: Records of the value that all other callbacks have made.
RECORD_RESULT: Final = -1_000_000
#: Password files and access rules: hooks and plugins are asked before.
CONFIGURATION: Final = -1_000_000
