import pytest
import trio

from tests.broker.room import room
from trunkline.plugins import Context, Settings


async def test_commands_and_figures() -> None:
    def plugin(context: Context[Settings]) -> None:
        greeted = context.counter("greeted", "Clients greeted.")
        context.gauge("seven", "Seven.", lambda: 7)
        context.command("greet", lambda who, loud="": (greeted.add(), f"hello {who}{loud}")[1])

    async with room() as here:
        plugins = here.admin.plugins
        await plugins.enable("greeter", None, plugin)
        assert plugins.call("greeter", "greet", {"who": "ann"}) == "hello ann"
        with pytest.raises(LookupError, match="no command 'gret'; it has greet"):
            plugins.call("greeter", "gret", {})
        with pytest.raises(ValueError, match=r"greeter greet\(who, loud=''\).*'whom'"):
            plugins.call("greeter", "greet", {"who": "ann", "whom": "ann"})
        figures = await here.admin.figures()
        assert (figures["plugins.greeter.greeted"], figures["plugins.greeter.seven"]) == (1, 7)
        await plugins.disable("greeter")
        figures = await here.admin.figures()
        assert figures["plugins.greeter.greeted"] == 1  # a count does not go back
        assert "plugins.greeter.seven" not in figures


async def test_log_lines_name_the_plugin(caplog: pytest.LogCaptureFixture) -> None:
    def figures(context: Context[Settings]) -> None:
        context.gauge("ratio", "Of nothing.", lambda: 1 // 0)

    async with room() as here:
        await here.admin.plugins.enable("figures", factory=figures)
        await here.admin.figures()
    assert [record.name for record in caplog.records if "ratio" in record.message] == ["trunkline.plugins.figures"]


async def test_a_run_that_is_over_cannot_use_the_broker() -> None:
    class Last:
        def __init__(self, context: Context[Settings]) -> None:
            self.context = context
            contexts.append(context)

        def stop(self) -> None:
            self.context.publish("last/words", "still here", retain=True)

    contexts: list[Context[Settings]] = []
    async with room() as here:
        await here.admin.plugins.enable("last", factory=Last)
        await here.admin.plugins.disable("last")
        assert [retained.topic for retained in here.broker.retained] == ["last/words"]
        for use in (lambda: contexts[0].publish("t"), lambda: contexts[0].kick("a"), lambda: contexts[0].clients()):
            with pytest.raises(RuntimeError, match="this run of the plugin last is over"):
                use()


def test_a_task_that_is_interrupted_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def interrupted(context: Context[Settings]) -> None:
        async def interrupt() -> None:
            raise KeyboardInterrupt

        context.nursery.start_soon(interrupt)

    async def run() -> None:
        async with room() as here:
            await here.admin.plugins.enable("interrupted", factory=interrupted)
            await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        trio.run(run)
    assert ("trunkline.plugins.interrupted", "a task was interrupted, and with it the broker") in [
        (record.name, record.message) for record in caplog.records
    ]
