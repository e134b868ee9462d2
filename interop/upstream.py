"""Tests that no broker can pass, each with the evidence: the error is in the suite or in the client.

Keys are `Class.method`; a failure named here is still shown and counted, but does not fail the run.
"""

from __future__ import annotations

JORAM: dict[str, str] = {}

TCK: dict[str, str] = {}
