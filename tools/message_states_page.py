"""Writer of docs/reference/message-states.md: the states of a message in a broker's heap, and the transitions."""

import sys
from pathlib import Path

from legato.core.message_states import STATES, TRANSITIONS

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "message-states.md"
_HEAD = """# The states of a message

These are the states of a message that a broker has in memory. Most messages of a long queue are on disk only.
Each transition is asserted as it happens: one that is not in the table stops the broker, and its backup takes over.

This page is made by `make message-states` from [message_states.py](../../src/legato/core/message_states.py).

"""


def page() -> str:
    """The page as it should be."""
    lines = ["| State | |\n|---|---|\n"]
    lines += [f"| {name} | {meaning} |\n" for name, meaning in STATES.values()]
    lines.append("\n| Transition | From | To | When |\n|---|---|---|---|\n")
    for transition in TRANSITIONS:
        sources = ", ".join(name for bit, (name, _) in STATES.items() if bit & transition.sources)
        lines.append(f"| {transition.name} | {sources} | {STATES[transition.target][0]} | {transition.when} |\n")
    lines.append("\n```mermaid\nstateDiagram-v2\n  [*] --> arriving: publish\n  [*] --> available: read from disk\n")
    for transition in TRANSITIONS:
        for bit, (name, _) in STATES.items():
            if bit & transition.sources:
                lines.append(f"  {name} --> {STATES[transition.target][0]}: {transition.name}\n")
    lines.append("  leaving --> [*]: its commit is durable\n```\n")
    return _HEAD + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
