"""The log on NATS does what a replicated log must."""

from tests.conformance.replicated_log.log import LogTests


class TestNatsLog(LogTests):
    pass
