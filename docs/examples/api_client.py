"""A client that sends an order until it knows what became of it."""

import time
import uuid


# [start-send]
def send(post, url, order, attempts=5):
    """``post`` is requests.post, or that of a session."""
    key = str(uuid.uuid4())  # once, for all attempts; store it with the order
    for _ in range(attempts):
        try:
            answer = post(url, json=order, headers={"Idempotency-Key": key}, timeout=30)
        except OSError:  # no answer: nobody knows whether the order was made
            time.sleep(1)
            continue
        if answer.status_code not in (409, 503) or "Retry-After" not in answer.headers:
            return answer  # done, or refused for good
        time.sleep(int(answer.headers["Retry-After"]))
    raise TimeoutError(f"nobody knows yet what became of the order {key}")
    # [end-send]
