"""Figures are logged, and a line a request would bury them."""

import logging

for chatty in ("httpx", "httpx2"):
    logging.getLogger(chatty).setLevel(logging.WARNING)
