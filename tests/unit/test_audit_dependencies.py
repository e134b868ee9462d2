"""`make audit-dependencies` on machines that cannot ask for advisories: a sentence, and what to do."""

import pytest
from tools.audit_dependencies import why_not_asked

FOUND = "Found 1 known vulnerability in 1 package\n"
NO_ADVISORIES = (
    "ERROR:pip_audit._cli:aio-pika: Dependency not found on PyPI and could not be audited: aio-pika (10.2.1)\n"
)
NO_NETWORK = """\
Traceback (most recent call last):
  File "cachecontrol/adapter.py", line 76, in send
requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.osv.dev', port=443): Failed to resolve 'api.osv.dev'
"""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (NO_ADVISORIES, "does not know the packages of requirements.lock"),
        (NO_NETWORK, "Failed to resolve 'api.osv.dev'"),
        (NO_NETWORK.replace("ConnectionError", "ProxyError"), "Failed to resolve 'api.osv.dev'"),
    ],
)
def test_a_machine_without_advisories_is_told_why(words: str, why: str) -> None:
    told = why_not_asked(words)
    assert told is not None
    assert why in told
    assert "Traceback" not in told


@pytest.mark.parametrize("words", [FOUND, "", "ERROR:pip_audit._cli:invalid requirements input: requirements.lock"])
def test_what_was_asked_is_told_in_pip_audits_words(words: str) -> None:
    assert why_not_asked(words) is None
