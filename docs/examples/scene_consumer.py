"""Settings for a message consumer to which the broker delivers over HTTP."""

import hmac

from flask import Flask, abort, request

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
app.config["MAILER_FAILS"] = False
Idempotency(app)
mailed = []


# [start-settings]
@app.before_request
def only_the_broker():
    given = request.args.get("secret", "").encode()
    if not hmac.compare_digest(given, b"only an example"):
        abort(403)


@app.post("/consume/order-paid")
@idempotent(
    key="json.message.id",
    scene="order-paid.mail",
    principal=lambda: "broker",
    fingerprint=False,  # only the counters of a delivery change
    ttl=7 * 24 * 3600,
    lease=60,
)
def mail_receipt():
    if app.config["MAILER_FAILS"]:
        return "", 503  # not acknowledged: the broker delivers it again
    mailed.append(request.json["message"]["order"])
    return "", 204  # acknowledged; so is every later delivery, by the replay
    # [end-settings]
