"""Beside flask-smorest."""

import marshmallow
from flask import Flask
from flask.views import MethodView
from flask_smorest import Api, Blueprint

from flask_idempotent import Idempotency, idempotent

app = Flask(__name__)
app.config.update(API_TITLE="Orders", API_VERSION="1", OPENAPI_VERSION="3.0.3")
Idempotency(app)
blueprint = Blueprint("orders", __name__)
made = []


class OrderSchema(marshmallow.Schema):
    number = marshmallow.fields.Integer()


# [start-view]
@blueprint.route("/orders")
class Orders(MethodView):
    @blueprint.response(201, OrderSchema)
    @idempotent
    def post(self):
        made.append("order")
        return {"number": len(made)}
        # [end-view]


Api(app).register_blueprint(blueprint)
