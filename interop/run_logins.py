"""`interop/run-logins`: Qpid JMS logs in over TLS by each mechanism that it has, and is denied what no role allows."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.openid import AUDIENCE, Provider, openid_provider

from interop.broker import ROOT, free_port
from interop.maven import Build, build, pom_version
from interop.outcomes import FAILED, PASSED, Outcome, Report
from interop.security import STORE_PASSWORD, write_stores
from legato.server.identity.users_file import User, changing, make_keys

MAIN = "legato.interop.Logins"
TIMEOUT_S = 120.0
SETTINGS = """
[server]
listen = "127.0.0.1:{port}"
[tls]
certificate = "{directory}/server.pem"
key = "{directory}/server.pem"
client_ca = "{directory}/clients.pem"
[auth]
failed_logins = {{ delay_s = 0 }}
[auth.jwt]
issuer = "{issuer}"
audience = "{audience}"
[[role]]
name = "senders"
members = ["ann", "cert"]
allow = [{{ on = "q", may = ["send", "receive", "create"] }}]
"""
DONE, DENIED = "done", "JMSSecurityException"


@contextlib.contextmanager
def broker(directory: Path, provider: Provider) -> Iterator[int]:
    """A broker with a user, certificates and tokens; gives its port."""
    port = free_port()
    store = directory / "store"
    store.mkdir(mode=0o700)
    with changing(store / "users") as content:
        content.users["ann"] = User("ann", (), make_keys("secret"))
    settings = SETTINGS.format(port=port, directory=directory, issuer=provider.issuer, audience=AUDIENCE)
    (directory / "legato.toml").write_text(settings)
    command = [sys.executable, "-m", "legato.cli", "serve", "--store", str(store), "--no-ledger"]
    command += ["--config", str(directory / "legato.toml")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if not process.stdout.readline().startswith("active"):
                raise RuntimeError("the broker did not start")
            yield port
        finally:
            process.terminate()


def scenarios(provider: Provider) -> Iterator[tuple[str, str, str, str, str, bool, str]]:
    """Name, mechanism, user, password, queue, whether a certificate is shown, and what is to be printed."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        yield f"{mechanism}", mechanism, "ann", "secret", "q", False, DONE
        yield f"{mechanism} with a wrong password", mechanism, "ann", "wrong", "q", False, DENIED
        yield f"{mechanism} of nobody", mechanism, "nobody", "secret", "q", False, DENIED
    yield "EXTERNAL", "EXTERNAL", "-", "-", "q", True, DONE
    yield "XOAUTH2", "XOAUTH2", "tom", provider.token("tom", roles=["senders"]), "q", False, DONE
    yield "XOAUTH2 with an expired token", "XOAUTH2", "ann", provider.token(lasts_s=-100), "q", False, DENIED
    yield "PLAIN with a token", "PLAIN", "tom", provider.token("tom", roles=["senders"]), "q", False, DONE
    token = provider.token("ann", roles=["senders"])
    yield "a token that names a user with a password", "XOAUTH2", "ann", token, "q", False, DENIED
    yield "no mechanism named", "", "ann", "secret", "q", False, DONE
    yield "a queue that no role allows", "SCRAM-SHA-256", "ann", "secret", "salaries", False, DENIED


def run(java: Build, only: str = "") -> Iterator[Outcome]:
    """Each scenario, one after the other."""
    directory = Path(tempfile.mkdtemp(prefix="legato-logins-"))
    try:
        write_stores(directory)
        with openid_provider() as provider, broker(directory, provider) as port:
            for name, mechanism, user, password, queue, shows, expected in scenarios(provider):
                if only not in name:
                    continue
                url = f"amqps://localhost:{port}?transport.trustStoreLocation={directory}/trust.p12"
                url += f"&transport.trustStorePassword={STORE_PASSWORD}&transport.storeType=PKCS12"
                if mechanism:
                    url += f"&amqp.saslMechanisms={mechanism}"
                if shows:
                    url += f"&transport.keyStoreLocation={directory}/client.p12"
                    url += f"&transport.keyStorePassword={STORE_PASSWORD}"
                began = time.monotonic()
                command = java.command(MAIN, url, user, password, queue)
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
                said = (done.stdout + done.stderr).strip()
                outcome = PASSED if said.startswith(expected) else FAILED
                milliseconds = int((time.monotonic() - began) * 1000)
                yield Outcome(f"qpid-jms.{name}", outcome, milliseconds, said if outcome == FAILED else "")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    """Run the scenarios, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="scenarios with this in their name")
    parser.add_argument("--classpath", default="", help="of Qpid JMS and our own classes; built with Maven if empty")
    arguments = parser.parse_args()
    java = Build(tuple(arguments.classpath.split(":"))) if arguments.classpath else build()
    started = time.monotonic()
    outcomes = []
    for outcome in run(java, arguments.only):
        print(outcome.outcome, outcome.test, outcome.reason, flush=True)
        outcomes.append(outcome)
    report = Report("logins", outcomes, time.monotonic() - started, {"qpid-jms": pom_version("qpid-jms")})
    if not arguments.only:
        report.write("logins")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
