"""The order in which callbacks of the broker, of its plugins and of its testing kit run, where it matters: higher
first.

Who registers without a priority runs at 0, between them.
"""

from sys import maxsize
from typing import Final

#: The trace of messages: it sees each message before anybody else changes it.
TRACE: Final = maxsize
#: Refusals that a test asks for.
TEST_REFUSAL: Final = 2_000_000
#: In place of a plugin that should decide and does not run: nothing may be allowed before it is asked.
GUARD: Final = 1_000_000
#: Those who record what happens: before others can end the chain.
RECORD: Final = 1_000_000
#: Faults that clients ask for: they show however the broker is set up.
FAULTS: Final = 100_000
#: Before any password is looked at.
BANS: Final = 10_000
#: The names that everybody else sees.
REWRITE: Final = 3000
#: Syntax in a topic that is for one plugin alone: taken off before others see the topic.
TOPIC_SYNTAX: Final = 2000
#: Those who watch decisions: before one ends the chain.
WATCH: Final = 1000
#: As it is subscribed to in the end, but before others grant it.
EXCLUSIVE: Final = 1000
#: Rules that came with a login, before somebody is asked who has to be waited for.
LOGIN_RULES: Final = 1
#: The message as it will be routed, after those who rewrite it.
VALIDATION: Final = -1000
#: Those who record what others have made of a value.
RECORD_RESULT: Final = -1_000_000
#: Password files and access rules: hooks and plugins are asked before.
CONFIGURATION: Final = -1_000_000
