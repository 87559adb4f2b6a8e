from typing import Any

import pytest

from trunkline.hooks.exchange import Continue, Success


@pytest.mark.parametrize("answer", [Continue, Success])
def test_what_fits_into_a_packet(answer: Any) -> None:
    assert answer(bytes(65_535)).data == bytes(65_535)
    with pytest.raises(ValueError, match="65536 bytes"):
        answer(bytes(65_536))
    with pytest.raises(TypeError, match="bytes, not str"):
        answer("text")
