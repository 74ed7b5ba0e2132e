"""A streamed template: its headers are gone before the helper is called."""

from flask import Flask, stream_template_string

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
Idempotency(app)


# [start-page]
@app.get("/long-form")
def long_form():
    page = stream_template_string("<form method=post action=/send>{{ idempotency_token() }}</form>")
    return page, {"Cache-Control": "private, no-cache"}
    # [end-page]


@app.post("/send")
@idempotent
def send():
    return "Sent."
