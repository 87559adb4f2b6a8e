"""The recipes of the documentation work."""

import runpy

import pytest

from tests.test_examples import ROOT

OUTPUTS = {
    "client_tls.py": "connected to tls as pump\naway\n",
    "client_request.py": """3 9
4 16
five failed: invalid literal for int() with base 10: 'five'
nobody has subscribed to cube
""",
    "mqtt_and_nats.py": "the device gets press: 80 °C\nplant.press.temp//oil has 71.5\n",
    "client_workers.py": "0 1 2 3 4 5\n",
    "client_session.py": """connected, session present: False
lost: the server closed the connection
connected, session present: True
doors: door/front open now
lamps: lamp/hall on retained
lamps: lamp/hall deleted now
""",
}


@pytest.mark.parametrize(("name", "output"), OUTPUTS.items())
def test_the_recipe(name: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    assert capsys.readouterr().out == output
