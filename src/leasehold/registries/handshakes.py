"""Whether a registry was not reached since the two do not trust each other: that is no outage, and nobody waits for it.

Owns how such an error is told from others, whichever HTTP library has wrapped it. A connection that ends within a
handshake may be an outage. Pure.
"""

from __future__ import annotations

import re
import ssl

CHECK = "Check its certificate, and the options ca, certificate and key of the URL"
_ALERTS = re.compile(r"ALERT_(?:\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED)")
"""What the other side says of our certificate, as OpenSSL names it."""


def refused_handshake(error: BaseException) -> str:
    """What is wrong with the certificate of either side; nothing where that is not why it failed."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        if isinstance(one, ssl.SSLCertVerificationError):
            return one.verify_message
        reason = getattr(one, "reason", None) if isinstance(one, ssl.SSLError) else None
        if isinstance(reason, str) and _ALERTS.search(reason):
            return reason
        one = getattr(one, "inner_exception", None) or one.__cause__ or one.__context__
    return ""
