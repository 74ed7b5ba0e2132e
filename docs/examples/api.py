"""An API whose clients bring a key with each order."""

from flask import Flask, abort, g, request

from flask_idempotent import Idempotency, idempotent

CUSTOMERS = {"secret-of-anna": "anna", "secret-of-ben": "ben"}

# [start-principal]
app = Flask(__name__)
app.config["IDEMPOTENCY_PRINCIPAL"] = lambda: g.customer
Idempotency(app)


@app.before_request
def check_api_key():
    g.customer = CUSTOMERS.get(request.headers.get("X-Api-Key"))
    if g.customer is None:
        abort(401)
        # [end-principal]


orders = []


def save(what):
    orders.append((g.customer, what))
    return {"number": len(orders)}, 201


# [start-required]
@app.post("/orders")
@idempotent(source="header")
def create_order():
    return save(request.json["item"])
    # [end-required]


# [start-optional]
@app.post("/notes")
@idempotent(source="header", required=False)
def create_note():
    return save("note")
    # [end-optional]


# [start-wait]
@app.post("/reports")
@idempotent(source="header", wait=5)
def create_report():
    return save("report")
    # [end-wait]
