"""Tests that no broker can pass, each with the evidence: the error is in the suite or in the client.

Keys are a test's name, as a run shows it; a failure named here is still shown and counted, but does not fail the run.
"""

from __future__ import annotations

_IDLE_CONSUMER = (
    "The suite's JmsTool.createCommonQSetup leaves a consumer of the same queue on a connection that it never "
    "starts. Qpid JMS gives credit for it all the same (JmsMessageConsumer.init does not ask whether the "
    "connection was started; on the wire: attach, then flow with link-credit=0x3e8, on both connections), and "
    "starting a connection sends nothing, so that a broker cannot tell the two consumers apart. Any broker that "
    "serves consumers in turn gives the first message to the idle one, and the test's receive, which has no limit, "
    "waits for ever. ActiveMQ passes it since its client has deferPrefetchUntilStarted, for this test, as a "
    "comment in its activemq-jakarta-messaging-tck says. Qpid Broker-J's tck module sets "
    "jms.prefetchPolicy.all=0, and with that Legato passes it too."
)

JORAM: dict[str, str] = {}

TCK: dict[str, str] = {}
"""With any prefetch."""

TCK_PREFETCHING: dict[str, str] = {
    "core20.jmsconsumertests.ClientIT.queueReceiveTests": _IDLE_CONSUMER,
    "core20.jmsconsumertests.ClientIT.queueReceiveBodyTests": _IDLE_CONSUMER,
    "core20.jmsconsumertests.ClientIT.queueReceiveBodyExceptionTests": _IDLE_CONSUMER,
}
"""With a prefetch other than 0."""
