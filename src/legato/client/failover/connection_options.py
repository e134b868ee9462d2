"""The options of a connection as keyword arguments, for editors and type checkers."""

from __future__ import annotations

from typing import Literal, TypedDict


class ConnectionOptions(TypedDict, total=False):
    """Options of `ConnectionFactory`, each as in a URI; `legato.client.failover.uri.Options` says what they mean."""

    client_failure_check_period_s: float
    reconnect_attempts: int
    reconnect_delay_s: float
    reconnect_backoff: float
    reconnect_delay_max_s: float
    reconnect_jitter: float
    connect_wait_s: float
    connect_attempts: int | None
    connect_timeout_s: float
    failover_on_initial_connection: bool | None
    failover_on_server_shutdown: bool | None
    exception_on_failover: bool | None
    discover: bool
    close_timeout_s: float
    prefetch: int
    send_window: int
    client_id: str | None
    send_user_id: bool
    vhost: str | None
    listener_error: Literal["redeliver", "acknowledge"] | None
    listener_backoff_s: float
    failover_contract: Literal["legato", "ems", "hornetq", "gigaspaces"]
    allow_insecure_plain: bool
    password_file: str | None
    token_file: str | None
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    tls_verify: bool
