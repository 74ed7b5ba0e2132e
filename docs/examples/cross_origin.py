"""A page of another origin that sends its form by script."""

from flask import Flask
from flask_cors import CORS

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
Idempotency(app)
CORS(
    app,
    origins=["https://shop.example"],
    allow_headers=["Content-Type", "Idempotency-Token"],
    expose_headers=["Idempotent-Replayed", "Retry-After"],
)


@app.post("/orders")
@idempotent
def create_order():
    return {"number": 1}, 201
