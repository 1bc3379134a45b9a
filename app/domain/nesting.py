"""How deep JSON nests, told from its bytes: the same in every process, whatever its interpreter bears.

Python's own bound moves with its version and with how many calls are under way. A row that validation could read, and
the worker or the finalizer could not, would lose its id between them.
"""

import re

MAX_DEPTH = 256
"""Objects and lists within each other that a row may have; far more than any request, far less than Python's bound."""

# A string that nobody closes goes on to the end, so that no byte is looked at twice.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]+|[\]}]+', re.DOTALL)
_OPENING = b"[{"
_CLOSING = b"]}"


def nests_too_deeply(content: bytes) -> bool:
    """Tell whether more than MAX_DEPTH objects and lists are open at once. Of what is no JSON it may say either."""
    if content.count(b"[") + content.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _TOKEN.finditer(content):
        first = content[token.start()]
        if first in _OPENING:
            depth += token.end() - token.start()
            if depth > MAX_DEPTH:
                return True
        elif first in _CLOSING:
            depth -= token.end() - token.start()
    return False
