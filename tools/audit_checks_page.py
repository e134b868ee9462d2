"""Writer of docs/reference/audit-checks.md: the checks of an audit as a table, from their definitions."""

import inspect
from pathlib import Path

from legato.spark.checks.catalogue import CHECKS
from legato.spark.checks.check import FRAMES, Check

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "audit-checks.md"

_HEAD = """# Checks of an audit

Written by `make audit-checks`. Each check is a function from frames to a frame of violations; an
[audit](../howto/audit.md) passes if all of these are empty. The functions are in `src/legato/spark/checks/`.

A check looks for violations among its *candidates*. These are counted first, for all checks at once, and a check
without candidates is not asked ([why](../decisions/0038-candidates-and-tags.md)).

| Check | What holds if it finds nothing | What it finds | Frames that it asks | File |
|---|---|---|---|---|
"""

_FRAMES = """
## Frames

| Frame | Rows |
|---|---|
"""


def page() -> str:
    """The text of the page."""
    rows = "".join(f"{_row(check)}\n" for check in CHECKS)
    frames = "".join(f"| `{name}` | {sentence} |\n" for name, sentence in FRAMES.items())
    return f"{_HEAD}{rows}{_FRAMES}{frames}"


def _row(check: Check) -> str:
    found = (inspect.getdoc(check.find) or "").partition("\n\n")[0].replace("\n", " ")
    frames = ", ".join(f"`{name}`" for name in dict.fromkeys((check.frame, *check.others)))
    file = Path(inspect.getfile(check.find)).name
    return f"| {check.name} | {check.wording.holds} | {found} | {frames} | `{file}` |"


if __name__ == "__main__":
    PAGE.write_text(page())
