"""Behind one proxy that sets X-Forwarded-For."""

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_idempotent import Idempotency, idempotency_token, idempotent

app = Flask(__name__)
app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1)
Idempotency(app)


@app.get("/form")
def form():
    return f"<form method=post action=/send>{idempotency_token()}<button>Send</button></form>"


@app.post("/send")
@idempotent
def send():
    return "Sent."
