"""Tokens in Redis or Valkey, by URL."""

import os

from flask import Flask, render_template_string

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
app.config["IDEMPOTENCY_STORE"] = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
app.config["IDEMPOTENCY_PREFIX"] = "shop"
Idempotency(app)


@app.get("/form")
def form():
    return render_template_string("<form method=post action=/send>{{ idempotency_token() }}</form>")


@app.post("/send")
@idempotent
def send():
    return "Sent."
