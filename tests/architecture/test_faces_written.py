"""The public classes of the client are what the tool writes from the steps."""

from pathlib import Path

import pytest
from tools import make_faces


@pytest.mark.parametrize("asyncio", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize("module", make_faces.MODULES, ids=lambda module: module.name)
def test_a_public_module_is_what_the_tool_writes(module: make_faces.Module, asyncio: bool) -> None:
    path: Path = make_faces.CLIENT / ("aio" if asyncio else ".") / f"{module.name}.py"
    assert path.read_text() == make_faces.written(module, asyncio=asyncio), "run `make faces`"
