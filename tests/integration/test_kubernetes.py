"""The example for Kubernetes: its objects keep to the schemas, and its brokers work with its settings and files.

The pod is played by two processes of this machine, with the arguments, variables, probes and files of its containers.
There is no cluster in this test. It needs `pip install pyyaml kubernetes-validate`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trustme

from legato.client import ConnectionFactory, TextMessage
from tests.support.server import free_port

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
EXAMPLE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "legato.yaml"
OBJECTS: dict[str, Any] = {found["kind"]: found for found in yaml.safe_load_all(EXAMPLE.read_text())}
POD = OBJECTS["StatefulSet"]["spec"]["template"]["spec"]
PORTS = {str(port["containerPort"]): free_port() for one in POD["containers"] for port in one["ports"]}
STEP_S = 60.0


def account() -> dict[str, Any]:
    """As whom the containers run: as the pod's user where we are root and that user can run our Python."""
    uid, gid = POD["securityContext"]["runAsUser"], POD["securityContext"]["runAsGroup"]
    theirs: dict[str, Any] = {"user": uid, "group": gid, "extra_groups": []}
    if os.getuid() != 0:
        return {}
    command = [sys.executable, "-c", "import legato.cli"]
    try:
        return theirs if subprocess.run(command, cwd="/", capture_output=True, **theirs).returncode == 0 else {}
    except PermissionError:
        return {}


ACCOUNT = account()


class Container:
    """A container of the pod as a process of this machine."""

    def __init__(self, described: dict[str, Any], directory: Path) -> None:
        self.probes = [described[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
        self.ports = {port["name"]: PORTS[str(port["containerPort"])] for port in described["ports"]}
        variables = {variable["name"]: here(variable["value"], directory) for variable in described["env"]}
        log = directory / f"{described['name']}.log"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "legato.cli", *(here(argument, directory) for argument in described["args"])],
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=log.open("ab"),
            text=True,
            **ACCOUNT,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert said, log.read_text()
        self.role = said.split()[0]

    def ask(self, probe: dict[str, str]) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[probe['port']]}{probe['path']}") as answer:
            return json.load(answer)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(STEP_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def here(text: str, directory: Path) -> str:
    """What the pod says, with this machine's paths and ports, and localhost for the name of the service."""
    text = text.replace("/var/lib/legato", f"{directory}/volume").replace("/etc/legato", f"{directory}/etc")
    for shown, used in PORTS.items():
        text = text.replace(f":{shown}", f":{used}")
    return text.replace('"legato:', '"localhost:')


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that the pod's user may enter."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture
def pod(directory: Path) -> Iterator[list[Container]]:
    """Both containers, with the volume and the secrets as Kubernetes mounts them: root's, for the group of the pod."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    for name in ("volume", "etc/config", "etc/tls", "etc/users"):
        (directory / name).mkdir(parents=True)
    (directory / "etc/config/legato.toml").write_text(here(OBJECTS["ConfigMap"]["data"]["legato.toml"], directory))
    certificate.private_key_pem.write_to_path(str(directory / "etc/tls/tls.key"))
    certificate.cert_chain_pems[0].write_to_path(str(directory / "etc/tls/tls.crt"))
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    add = [sys.executable, "-m", "legato.cli", "user", "add", "ann", "--roles", "application", "--iterations", "4096"]
    subprocess.run([*add, "--users-file", directory / "etc/users/users"], input="tea\n", text=True, check=True)
    [mode] = {volume["secret"]["defaultMode"] for volume in POD["volumes"] if "secret" in volume}
    for secret in ("etc/tls/tls.key", "etc/tls/tls.crt", "etc/users/users"):
        (directory / secret).chmod(mode if ACCOUNT else 0o600)
        os.chown(directory / secret, -1, ACCOUNT.get("group", -1))
    os.chown(directory / "volume", -1, ACCOUNT.get("group", -1))
    (directory / "volume").chmod(0o2775)
    with ExitStack() as stack:
        containers = []
        for described in POD["containers"]:
            containers.append(Container(described, directory))
            stack.callback(containers[-1].close)
        yield containers


def test_the_objects_keep_to_the_schemas_of_kubernetes() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for found in OBJECTS.values():
        validate.validate(found, validate.latest_version(), strict=True)


def test_names_of_ports_volumes_and_labels_agree() -> None:
    """What a schema does not see: each name that is used is defined."""
    volumes = {volume["name"] for volume in POD["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in OBJECTS["StatefulSet"]["spec"]["volumeClaimTemplates"]}
    ports = {port["name"] for one in POD["containers"] for port in one["ports"]}
    assert {mount["name"] for one in POD["containers"] for mount in one["volumeMounts"]} == volumes
    assert {port["targetPort"] for port in OBJECTS["Service"]["spec"]["ports"]} <= ports
    assert {port["port"] for rule in OBJECTS["NetworkPolicy"]["spec"]["ingress"] for port in rule["ports"]} == ports
    labels = OBJECTS["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert OBJECTS["Service"]["spec"]["selector"].items() <= labels.items()
    assert OBJECTS["StatefulSet"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert POD["shareProcessNamespace"] is True


def test_the_containers_are_a_pair_whose_probes_answer_and_whose_backup_takes_over(
    pod: list[Container], directory: Path
) -> None:
    primary, backup = sorted(pod, key=lambda one: one.role)
    assert (primary.role, backup.role) == ("active", "backup")
    roles = [container.ask(container.probes[-1])["role"] for container in (primary, backup)]
    assert roles == ["primary", "backup"]
    assert all(container.ask(probe) for container in pod for probe in container.probes)

    addresses = ",".join(f"localhost:{PORTS[port]}" for port in ("5671", "5672"))
    factory = ConnectionFactory(f"amqps://ann:tea@{addresses}", tls_ca_file=str(directory / "ca.pem"))
    with factory.create_connection() as connection, connection.create_session() as session:
        connection.start()
        orders = session.create_queue("orders")
        producer, consumer = session.create_producer(orders), session.create_consumer(orders)
        producer.send(TextMessage("before"))
        primary.process.kill()
        producer.send(TextMessage("after"))
        received = [consumer.receive(TextMessage, timeout_s=STEP_S) for _ in range(2)]
        assert [message.text if message else None for message in received] == ["before", "after"]
    assert backup.ask({"path": "/readyz?role=primary", "port": backup.probes[0]["port"]})
