"""The replicated log on NATS JetStream: a stream of three replicas, each on disk before it is acknowledged."""

from importlib.util import find_spec

if find_spec("nats") is None:
    # Without a name: that is the sign of an error that is for the user (`legato.cli.failures`).
    raise ImportError("A log on NATS needs nats-py: pip install 'legato[replication]'.")

from legato.replication.nats.engine import Opening, open_log
from legato.replication.nats.group_maps import NatsGroupMaps
from legato.replication.nats.register import NatsRegister, open_register
from legato.replication.nats.settings import NatsSettings
from legato.replication.nats.survey import survey

__all__ = ["NatsGroupMaps", "NatsRegister", "NatsSettings", "Opening", "open_log", "open_register", "survey"]
