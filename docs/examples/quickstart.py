from flask import Flask, redirect, render_template_string, request

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
Idempotency(app)
orders = []

FORM = """
<form method="post" action="/orders">
  {{ idempotency_token() }}
  <input name="item"> <button>Order</button>
</form>
"""


@app.get("/")
def form():
    return render_template_string(FORM)


@app.get("/orders")
def list_orders():
    return orders


@app.post("/orders")
@idempotent
def create_order():
    orders.append(request.form["item"])
    return redirect("/orders")
