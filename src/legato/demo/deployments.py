"""Brokers of a demo: a pair over one store, or machines that each have a store and a server of the log."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from legato.demo.options import DemoOptions
from legato.processes.broker_process import BrokerProcess, Role
from legato.processes.scratch import choose_ports

GROUP = "flights"


class Deployment(Protocol):
    """The brokers of a run, what else they need, and what losing one of them is.

    Attributes:
        brokers: all of them; the first one is started first.
    """

    brokers: Sequence[BrokerProcess]

    @property
    def url(self) -> str:
        """Where clients find the brokers."""

    @property
    def store(self) -> Path:
        """The store of the broker that is the primary, or was the last one."""

    def start(self) -> str:
        """Start what the brokers need; says what that was, empty if nothing."""

    def lose(self, broker: BrokerProcess) -> str:
        """Lose a broker without warning; says what happened."""

    def restore(self, broker: BrokerProcess) -> None:
        """Bring back what the lost broker needs; it may take until `is_restored`."""

    def is_restored(self, broker: BrokerProcess) -> bool:
        """Whether the broker may be started again."""

    def close(self) -> None:
        """End what `start` started."""


class SharedStore:
    """A primary and a backup over one directory: a process is lost, the directory is not."""

    def __init__(self, options: DemoOptions) -> None:
        self.store = options.out / "store"
        ports = choose_ports(options.port)
        self.brokers: Sequence[BrokerProcess] = [
            BrokerProcess(name, port, self.store, log_file_of(options, name))
            for name, port in zip(("broker-a", "broker-b"), ports, strict=True)
        ]
        self.url = url_of(self.brokers)

    def start(self) -> str:
        """Nothing: the brokers need only their directory."""
        return ""

    def lose(self, broker: BrokerProcess) -> str:
        """SIGKILL."""
        broker.kill()
        return f"SIGKILL to {broker.name}"

    def restore(self, broker: BrokerProcess) -> None:
        """Nothing: the store is there."""

    def is_restored(self, broker: BrokerProcess) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Nothing."""


class Machines:
    """Machines that share nothing: each has a broker with a store of its own and a server of the replicated log.

    They are processes with directories of their own on this machine. One is lost as a whole: both processes are killed
    and their directories removed.

    Raises:
        ConfigError: there is no `nats-server`.
    """

    def __init__(self, options: DemoOptions) -> None:
        from legato.processes.log_servers import LogServers

        directory = options.out / "machines"
        self._servers = LogServers(directory.resolve(), nodes=options.machines)
        names = [f"machine-{number}" for number in range(1, options.machines + 1)]
        self._log_server = dict(zip(names, self._servers.servers, strict=True))
        self._stores = {name: server.directory / "store" for name, server in self._log_server.items()}
        self._configurations = {name: options.out / f"{name}.toml" for name in names}
        self.brokers: Sequence[BrokerProcess] = [
            BrokerProcess(
                name,
                port,
                self._stores[name],
                log_file_of(options, name),
                options=("--config", str(self._configurations[name])),
            )
            for name, port in zip(names, choose_ports(options.port, options.machines), strict=True)
        ]
        self.url = url_of(self.brokers)

    @property
    def store(self) -> Path:
        """The store of the primary, or of the one that was it last."""
        return self._stores[max(self.brokers, key=lambda broker: broker.epoch).name]

    def start(self) -> str:
        """Start the servers of the log, and write each broker's configuration."""
        for name, server in self._log_server.items():
            self._configurations[name].write_text(
                f'[replication]\nservers = "{self._servers.url}"\ngroup = "{GROUP}"\nbeside = "{server.name}"\n'
            )
        self._servers.start()
        return f"{len(self.brokers)} servers keep the replicated log, one on each machine"

    def lose(self, broker: BrokerProcess) -> str:
        """The machine is gone: broker, server of the log, and all that they wrote."""
        server = self._log_server[broker.name]
        broker.kill()
        server.kill()
        server.wipe()
        shutil.rmtree(self._stores[broker.name], ignore_errors=True)
        return f"{broker.name} is lost: broker and log server killed, their directories removed,"

    def restore(self, broker: BrokerProcess) -> None:
        """A new machine takes the place of the lost one, with empty directories."""
        self._log_server[broker.name].start()

    def is_restored(self, broker: BrokerProcess) -> bool:
        """Whether its server of the log has what the others have."""
        return self._log_server[broker.name].is_healthy

    def close(self) -> None:
        """Stop the servers of the log."""
        self._servers.close()


def deployment_of(options: DemoOptions) -> Deployment:
    """The brokers that a run wants.

    Raises:
        ConfigError: this machine lacks something that they need.
    """
    return SharedStore(options) if options.machines == 1 else Machines(options)


def log_file_of(options: DemoOptions, name: str) -> Path:
    """The log of a process of the run."""
    return options.out / "logs" / f"{name}.log"


def url_of(brokers: Sequence[BrokerProcess]) -> str:
    """All brokers in one URL."""
    return "amqp://" + ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)


def another_primary(brokers: Sequence[BrokerProcess], lost: BrokerProcess) -> BrokerProcess | None:
    """The broker that took over from a lost one; None if none has yet."""
    return next((broker for broker in brokers if broker is not lost and broker.role is Role.PRIMARY), None)
