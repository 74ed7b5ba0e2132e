"""Count duplicates with a signal."""

from collections import Counter

from flask import Flask, render_template_string

from flask_idempotent import Idempotency, idempotent, signals

app = Flask(__name__)
Idempotency(app)
duplicates = Counter()


# [start-signal]
@signals.duplicate.connect_via(app)
def count(_, event):
    duplicates[event.description or event.scene] += 1
    # [end-signal]


@app.get("/form")
def form():
    return render_template_string("<form method=post action=/send>{{ idempotency_token() }}</form>")


@app.post("/send")
@idempotent(description="sending a letter")
def send():
    return "Sent."
