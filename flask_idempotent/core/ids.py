"""Random names: tokens and owners."""

from __future__ import annotations

import secrets
import uuid


def new_token() -> str:
    """Return a token: a random UUID (122 bits) in its usual spelling with hyphens."""
    return str(uuid.uuid4())


def new_owner() -> str:
    """Return an owner: 96 random bits as 16 URL-safe characters, one for each attempt to claim."""
    return secrets.token_urlsafe(12)
