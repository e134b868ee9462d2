"""Entry point of `legato`: loads its commands, and has standard streams for them."""

import os
import signal
import sys
from io import TextIOWrapper


def main() -> None:
    """Run the command line; the process exits with its code."""
    open_standard_streams()
    spell_what_cannot_be_printed()
    if os.environ.get("COLUMNS") == "0":
        # So some tools say that they do not know. Rich would print into no columns: nothing.
        del os.environ["COLUMNS"]
    # Commands load in half a second: who gives up meanwhile sees no stack trace of an import.
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from legato.cli.main import main as run

    if raises:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def open_standard_streams() -> None:
    """Open those that are closed, as the null device.

    A file or socket of ours would get the number of one, and with it what others write there: libuv ends the process
    then.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It gets the lowest number that is free, which is that of the stream.
            stream = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def spell_what_cannot_be_printed() -> None:
    """Have characters that the terminal's encoding has not, such as those of a queue's name, written as Python does.

    So it is on standard error anyway; on standard output they would end a command whose work is done.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
