"""Tokens that fit one operation only."""

from flask import Flask, render_template_string

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
Idempotency(app)
done = []

PAGE = """
<form method="post" action="/order">{{ idempotency_token("order.create") }}<button>Order</button></form>
<form method="post" action="/cancel">{{ idempotency_token("cancel", ttl=900) }}<button>Cancel</button></form>
"""


@app.get("/")
def page():
    return render_template_string(PAGE)


@app.post("/order")
@idempotent(scene="order.create")
def order():
    done.append("order")
    return "Ordered."


@app.post("/cancel")
@idempotent  # an endpoint's name is a scene, too
def cancel():
    done.append("cancel")
    return "Cancelled."
