"""Tokens in Redis or Valkey, through a client that the app makes itself."""

import os

import redis
from flask import Flask, render_template_string
from redis.backoff import NoBackoff
from redis.retry import Retry

from flask_idempotent import Idempotency, idempotent

client = redis.Redis.from_url(
    os.environ.get("REDIS_URL", "redis://localhost:6379/0"),
    socket_connect_timeout=0.4,  # seconds
    socket_timeout=0.4,
    retry=Retry(NoBackoff(), 1),
)
app = Flask(__name__)
Idempotency(app, store=client)


@app.get("/form")
def form():
    return render_template_string("<form method=post action=/send>{{ idempotency_token() }}</form>")


@app.post("/send")
@idempotent
def send():
    return "Sent."
