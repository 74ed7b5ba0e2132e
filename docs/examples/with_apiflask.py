"""Beside APIFlask."""

import apiflask

from flask_idempotent import Idempotency, IdempotencyError, idempotent

app = apiflask.APIFlask(__name__)
Idempotency(app)
made = []


class OrderSchema(apiflask.Schema):
    number = apiflask.fields.Integer()


# [start-view]
@app.post("/orders")
@app.output(OrderSchema, status_code=201)
@idempotent
def create_order():
    made.append("order")
    return {"number": len(made)}
    # [end-view]


# [start-cure]
@app.errorhandler(IdempotencyError)
def in_our_words(error):
    return error
    # [end-cure]
