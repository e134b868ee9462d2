"""The how-to on security works: all of its commands, from top to bottom, with a broker that listens to the world."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.test_docs import BLOCK, ROOT
from tests.support.server import free_port

PAGE = ROOT / "docs" / "howto" / "security.md"
SERVE = "legato serve --config legato.toml"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_each_step_of_the_page_does_what_it_says(tmp_path: Path) -> None:
    port = str(free_port())
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = os.environ | {"PATH": path, "LEGATO_LEDGER_ENABLED": "false"}
    shown: dict[str, str] = {}
    exports: list[str] = []
    broker: subprocess.Popen[str] | None = None

    def run(script: str) -> str:
        exports.extend(line for line in script.splitlines() if line.startswith("export "))
        whole = "\n".join(["set -eu", "umask 077", *exports[-1:], script])
        done = subprocess.run(
            ["bash", "-c", whole], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, script + done.stdout + done.stderr
        return done.stdout + done.stderr

    try:
        for found in BLOCK.finditer(PAGE.read_text()):
            code = found[2].replace("5671", port)
            if found[1] == "toml":
                (tmp_path / "legato.toml").write_text(code)
                continue
            if "kill -HUP" in code:
                assert broker is not None
                code = code.splitlines()[0]
                run(code)
                broker.send_signal(1)
                continue
            before, _, after = code.partition(SERVE)
            for line in [before] if "<<" in before else before.splitlines():
                shown[line.split("\n")[0]] = run(line)
            if SERVE in code:
                assert not after.strip()
                broker = subprocess.Popen(
                    SERVE.split(), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
                )
                assert broker.stdout is not None
                assert broker.stdout.readline().startswith("active")
        assert shown["legato can ann send orders.new --config legato.toml"].startswith("yes")
        assert shown["legato can ann operate --config legato.toml || true"].startswith("no")
        assert "ann  billing\nop   operators\n" in shown["legato user list --store store"]
        assert shown["legato receive orders.new"] == "a first order\n"
        assert "send on 'salaries'" in shown['legato send salaries "not hers" || true']
        assert "dropped 1 message" in shown["legato queue purge orders.new --yes"]
        last = json.loads(shown["tail -n 1 audit.jsonl"])
        assert (last["user"], last["operation"], last["object"], last["decision"]) == (
            *("op", "purge", "orders.new"),
            "allowed",
        )
        deadline = time.monotonic() + 240
        while True:
            # Removed.
            url = f"amqps://ann@localhost:{port}?password_file=ann.password&tls_ca_file=certificate.pem"
            refused = subprocess.run(
                ["legato", "send", "orders.new", "x"],
                cwd=tmp_path,
                env=environment | {"LEGATO_URL": url},
                capture_output=True,
                text=True,
                check=False,
            )
            if refused.returncode:
                assert "refused the login" in refused.stderr
                break
            assert time.monotonic() < deadline
    finally:
        if broker is not None:
            broker.kill()
            broker.wait()
            if broker.stdout is not None:
                broker.stdout.close()
