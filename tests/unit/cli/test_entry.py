"""The beginning of a command: signals while it loads, and streams that are closed."""

import signal
import subprocess
import sys
from pathlib import Path

INTERRUPTED_WHILE_IT_LOADS = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "legato.cli.drill":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
# Where the tests run in the background, their processes inherit that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from legato.cli.entry import main
main()
"""
STREAMS = """
import os, sys
from legato.cli.entry import open_standard_streams

open_standard_streams()
with open(sys.argv[1], "w") as said:
    numbers = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
    inheritable = [os.get_inheritable(number) for number in range(3)]
    print(numbers, inheritable, said.fileno(), repr(sys.stdin.read()), file=said)
print("to nobody")
print("to nobody", file=sys.stderr)
"""


def test_an_interrupt_while_commands_load_shows_no_stack_trace() -> None:
    command = [sys.executable, "-c", INTERRUPTED_WHILE_IT_LOADS]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (-signal.SIGINT, "", "")


def test_standard_streams_that_are_closed_are_opened(tmp_path: Path) -> None:
    """A file would get the number of one, and what others write there."""
    said = tmp_path / "said"
    command = [sys.executable, "-c", STREAMS, str(said)]
    subprocess.run(["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command], check=True)
    numbers, rest = said.read_text().split(" [True, True, True] ")
    assert numbers == "[0, 1, 2]"
    assert rest.startswith("3 ''")
