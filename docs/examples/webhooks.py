"""What a payment provider calls, and calls again."""

import hmac
from functools import wraps

from flask import Flask, abort, request

from flask_idempotent import Idempotency, idempotent

SECRET = b"only an example"

app = Flask(__name__)
Idempotency(app)
booked, refunded, bounced = [], [], []


# [start-signed]
def signed(view):
    @wraps(view)
    def checked(*args, **kwargs):
        expected = hmac.digest(SECRET, request.get_data(), "sha256").hex()
        given = request.headers.get("X-Signature", "")
        if not hmac.compare_digest(expected.encode(), given.encode()):
            abort(403)
        return view(*args, **kwargs)

    return checked
    # [end-signed]


# [start-callback]
@app.post("/hooks/payments")
@signed
@idempotent(
    key="json.transaction",
    scene="payment.callback",
    principal=lambda: "provider",
    ignore=("attempt", "sent_at"),
)
def payment():
    booked.append(request.json["transaction"])
    return "", 204
    # [end-callback]


def pay_back(amount):
    refunded.append(amount)
    raise ConnectionError("the bank hung up")


# [start-reconcile]
@app.post("/hooks/refunds")
@signed
@idempotent(
    key="json.transaction",
    scene="refund.callback",
    principal=lambda: "provider",
    fingerprint=("transaction", "amount"),
    restore_on_error=False,
)
def refund():
    pay_back(request.json["amount"])  # may break off with the money on its way
    return "", 204
    # [end-reconcile]


# [start-final]
@app.post("/hooks/bounces")
@signed
@idempotent(
    key="json.event",
    scene="mail.bounce",
    principal=lambda: "provider",
    final=lambda answer: answer.status_code < 500,
)
def bounce():
    bounced.append(request.json["event"])
    return {"error": "no such address"}, 404
    # [end-final]
