"""Legato without its AMQP engine, which has to be compiled where there is no wheel of it."""

import subprocess
import sys

WITHOUT = "import sys; sys.modules['cproton_ffi'] = None; "


def test_a_client_without_the_engine_says_what_is_missing_in_a_sentence() -> None:
    """USERS B3."""
    done = subprocess.run(
        [sys.executable, "-c", f"{WITHOUT}import legato.client"], capture_output=True, text=True, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: Legato's AMQP engine is not installed: pip install python-qpid-proton.")


def test_a_command_without_the_engine_has_no_stack_trace() -> None:
    command = f"{WITHOUT}sys.argv = ['legato', 'send', 'q', 'x']; from legato.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install python-qpid-proton" in done.stderr
    assert "Traceback" not in done.stderr
