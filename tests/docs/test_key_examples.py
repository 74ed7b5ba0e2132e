"""The programs that the pages about client-made keys show: each does what its page says."""

from __future__ import annotations

import hmac
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.docs.conftest import Load
from tests.helpers import REPLAYED, assert_refused, assert_repeated, reason_of, token_of
from tests.servers import RedisServer

KEY = "Idempotency-Key"


def statuses(answers: list[Any]) -> list[tuple[int, str | None]]:
    return [(answer.status_code, reason_of(answer)) for answer in answers]


class Paused(list[Any]):
    """Stands for a ledger whose entries take a while: from ``entered`` on until ``go_on`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go_on = Event(), Event()

    def append(self, entry: Any) -> None:
        self.entered.set()
        assert self.go_on.wait(10)
        super().append(entry)


class TestApi:
    ANNA, BEN = {"X-Api-Key": "secret-of-anna"}, {"X-Api-Key": "secret-of-ben"}

    @pytest.mark.case("S8")
    def test_an_order_needs_a_key(self, load: Load) -> None:
        example = load("api")
        client = example.app.test_client()
        headers = {**self.ANNA, KEY: "order-1"}
        first, second = (client.post("/orders", json={"item": "tea"}, headers=headers) for _ in range(2))
        assert (first.status_code, first.json) == (201, {"number": 1})
        assert_repeated(second, first)
        assert_refused(client.post("/orders", json={"item": "tea"}, headers=self.ANNA), "key_missing", 400)
        assert example.orders == [("anna", "tea")]

    def test_the_key_of_one_customer_is_another_one_s_own(self, load: Load) -> None:
        example = load("api")
        client = example.app.test_client()
        answers = [
            client.post("/orders", json={"item": "tea"}, headers={**who, KEY: "1"}) for who in (self.ANNA, self.BEN)
        ]
        assert [answer.json for answer in answers] == [{"number": 1}, {"number": 2}]
        assert client.post("/orders", json={"item": "tea"}, headers={KEY: "1"}).status_code == 401
        assert [customer for customer, _ in example.orders] == ["anna", "ben"]

    def test_an_optional_key_counts_if_it_is_there(self, load: Load) -> None:
        example = load("api")
        client = example.app.test_client()
        sent = [self.ANNA, self.ANNA, {**self.ANNA, KEY: "n"}, {**self.ANNA, KEY: "n"}]
        answers = [client.post("/notes", headers=headers) for headers in sent]
        assert [answer.json["number"] for answer in answers] == [1, 2, 3, 3]
        assert_refused(client.post("/notes", headers={**self.ANNA, KEY: "two words"}), "key_invalid", 400)

    def test_a_duplicate_waits_for_the_report(self, load: Load) -> None:
        example = load("api")
        example.orders = Paused()
        headers = {**self.ANNA, KEY: "report-1"}
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(lambda: example.app.test_client().post("/reports", headers=headers))
            assert example.orders.entered.wait(10)
            second = pool.submit(lambda: example.app.test_client().post("/reports", headers=headers))
            example.orders.go_on.set()
            assert first.result(10).json == second.result(10).json == {"number": 1}
        assert len(example.orders) == 1


class TestApiClient:
    def test_it_sends_the_same_key_until_it_knows(self, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
        example = load("api_client")
        slept: list[float] = []
        monkeypatch.setattr(example, "time", SimpleNamespace(sleep=slept.append))
        answers = [
            ConnectionResetError(),
            SimpleNamespace(status_code=409, headers={"Retry-After": "2"}),
            SimpleNamespace(status_code=201, headers={}),
        ]
        keys = []

        def post(_url: str, **options: Any) -> Any:
            keys.append(options["headers"][KEY])
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        assert example.send(post, "/orders", {"item": "tea"}).status_code == 201
        assert (len(keys), len(set(keys)), slept) == (3, 1, [1, 2])

    @pytest.mark.parametrize("status", [400, 409, 422])
    def test_it_repeats_no_refusal_that_stands(self, load: Load, status: int) -> None:
        sent = []

        def post(url: str, **_options: Any) -> Any:
            sent.append(url)
            return SimpleNamespace(status_code=status, headers={})

        assert load("api_client").send(post, "/orders", {}).status_code == status
        assert sent == ["/orders"]

    def test_it_says_that_it_does_not_know(self, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
        example = load("api_client")
        monkeypatch.setattr(example, "time", SimpleNamespace(sleep=lambda _: None))

        def post(*_: Any, **__: Any) -> Any:
            raise TimeoutError

        with pytest.raises(TimeoutError, match="nobody knows yet"):
            example.send(post, "/orders", {})


class TestKeys:
    @pytest.fixture
    def example(self, load: Load) -> ModuleType:
        return load("keys")

    @pytest.mark.case("S8")
    def test_a_parameter(self, example: ModuleType) -> None:
        client = example.app.test_client()
        first, second = (client.post("/refunds", json={"request_id": 7, "euros": 5}) for _ in range(2))
        assert_repeated(second, first)
        assert client.post("/refunds?request_id=8").json == {"done": 2}
        assert client.post("/refunds", data={"request_id": "9"}).json == {"done": 3}
        assert_refused(client.post("/refunds", json={}), "key_missing", 400)

    @pytest.mark.case("S8")
    def test_an_expression(self, example: ModuleType) -> None:
        client = example.app.test_client()
        asked = {"customer": 4, "parcels": [{"number": "P-1"}]}
        first, second = (client.post("/shipments", json=asked) for _ in range(2))
        assert_repeated(second, first)
        missing = client.post("/shipments", json={"customer": 4, "parcels": []})
        assert_refused(missing, "key_missing", 400)
        assert "json.parcels[0]" in missing.json["detail"]

    @pytest.mark.case("S8")
    def test_the_view_s_arguments_and_a_callable(self, example: ModuleType) -> None:
        client = example.app.test_client()
        for path in ("/jobs/3/monday", "/jobs/3/tuesday", "/jobs/3/monday"):
            assert client.post(path).status_code == 200
        hosts = ("north.example", "south.example", "north.example")
        answers = [client.post("/invoices/17", headers={"Host": host}) for host in hosts]
        assert [REPLAYED in answer.headers for answer in answers] == [False, False, True]
        assert example.done == [(3, "monday"), (3, "tuesday"), ("north", "17"), ("south", "17")]

    @pytest.mark.case("S8")
    def test_a_token_or_a_key(self, example: ModuleType) -> None:
        client = example.app.test_client()
        form = {"idempotency_token": token_of(client, "/checkout")}
        key = {KEY: "basket-4"}
        answers = [client.post("/checkout", data=form) for _ in range(2)]
        answers += [client.post("/checkout", headers=key) for _ in range(2)]
        assert [answer.json["done"] for answer in answers] == [1, 1, 2, 2]
        assert_refused(client.post("/checkout"), "token_missing", 400)

    @pytest.mark.case("S9", "P5")
    def test_two_views_of_one_scene_share_their_keys(self, example: ModuleType) -> None:
        client = example.app.test_client()
        paths = ("/v1/charges", "/v1/charges", "/v2/charges")
        answers = [client.post(path, headers={KEY: "c-1"}) for path in paths]
        assert statuses(answers) == [(200, None), (200, None), (422, "key_reused")]  # the path counts as content
        assert client.post("/checkout", headers={KEY: "c-1"}).json == {"done": 2}

    @pytest.mark.case("S13")
    def test_a_lock(self, example: ModuleType) -> None:
        example.done = Paused()
        client = example.app.test_client()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(lambda: example.app.test_client().post("/accounts/1/withdrawals", headers={KEY: "a"}))
            assert example.done.entered.wait(10)
            locked = client.post("/accounts/1/withdrawals", headers={KEY: "b"})
            example.done.go_on.set()
            assert first.result(10).status_code == 200
        assert_refused(locked, "locked")
        assert int(locked.headers["Retry-After"]) >= 1
        assert client.post("/accounts/1/withdrawals", headers={KEY: "b"}).status_code == 200
        assert example.done == [(1,), (1,)]

    @pytest.mark.case("S21")
    def test_an_interval(self, example: ModuleType) -> None:
        def comment(address: str) -> Any:
            return example.app.test_client().post("/comments", environ_base={"REMOTE_ADDR": address})

        answers = [comment(address) for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2")]
        assert statuses(answers) == [(200, None), (429, "too_soon"), (200, None)]
        assert 1 <= int(answers[1].headers["Retry-After"]) <= 10


class TestWebhooks:
    @pytest.fixture
    def example(self, load: Load) -> ModuleType:
        return load("webhooks")

    def call(self, example: ModuleType, path: str, **told: Any) -> Any:
        body = json.dumps(told).encode()
        signature = hmac.digest(example.SECRET, body, "sha256").hex()
        headers = {"Content-Type": "application/json", "X-Signature": signature}
        return example.app.test_client().post(path, data=body, headers=headers)

    @pytest.mark.case("S19")
    def test_a_payment_is_booked_once(self, example: ModuleType) -> None:
        calls = [self.call(example, "/hooks/payments", transaction="T-1", amount=5, attempt=n) for n in (1, 2, 3)]
        assert statuses(calls) == [(204, None)] * 3
        assert [REPLAYED in call.headers for call in calls] == [False, True, True]
        assert_refused(self.call(example, "/hooks/payments", transaction="T-1", amount=6), "key_reused", 422)
        assert example.booked == ["T-1"]

    def test_a_forged_call_is_turned_away_before_its_key_is_looked_up(self, example: ModuleType) -> None:
        self.call(example, "/hooks/payments", transaction="T-1")
        for signature in ("", "0" * 64, "ü"):
            client = example.app.test_client()
            headers = {"X-Signature": signature}
            assert client.post("/hooks/payments", json={"transaction": "T-1"}, headers=headers).status_code == 403

    @pytest.mark.case("S14")
    def test_a_refund_that_broke_off_waits_for_people(self, example: ModuleType) -> None:
        calls = [self.call(example, "/hooks/refunds", transaction="R-1", amount=5, attempt=n) for n in (1, 2)]
        assert statuses(calls) == [(500, None), (409, "failed")]
        assert example.refunded == [5]

    def test_an_answer_that_is_final_is_given_again(self, example: ModuleType) -> None:
        calls = [self.call(example, "/hooks/bounces", event="B-1") for _ in range(2)]
        assert [(call.status_code, call.json) for call in calls] == [(404, {"error": "no such address"})] * 2
        assert example.bounced == ["B-1"]


@pytest.mark.case("S26")
class TestOrdersAndPayments:
    @pytest.fixture
    def example(self, load: Load, valkey: RedisServer, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        monkeypatch.setenv("REDIS_URL", valkey.url)
        return load("scene_order")

    def post(self, example: ModuleType, path: str, key: str) -> Any:
        return example.app.test_client().post(path, headers={KEY: key, "X-Customer": "anna"})

    def test_an_order_and_its_payment_happen_once(self, example: ModuleType) -> None:
        answers = [self.post(example, path, "1") for path in 2 * ("/orders", "/orders/1/payment")]
        assert [answer.json for answer in answers] == 2 * [{"number": 1}, {"paid": 1}]
        assert (example.orders, example.charges) == (["anna"], [1])

    def test_a_form_orders_by_its_token(self, example: ModuleType) -> None:
        client = example.app.test_client()
        token = client.get("/idempotency/token?scene=order.create").json["token"]
        answers = [client.post("/orders", headers={"Idempotency-Token": token, "X-Customer": "anna"}) for _ in range(2)]
        assert [answer.json for answer in answers] == [{"number": 1}] * 2

    def test_a_charge_of_which_nobody_knows_is_not_tried_again(self, example: ModuleType) -> None:
        example.app.config["BANK_IS_DOWN"] = True
        first = self.post(example, "/orders/1/payment", "p")
        example.app.config["BANK_IS_DOWN"] = False
        assert statuses([first, self.post(example, "/orders/1/payment", "p")]) == [(500, None), (409, "failed")]
        assert example.charges == []

    def test_a_charge_that_was_made_is_not_made_again(self, example: ModuleType) -> None:
        example.app.config["MAIL_IS_DOWN"] = True
        answers = [self.post(example, "/orders/1/payment", "p") for _ in range(2)]
        assert statuses(answers) == [(500, None), (409, "response_unavailable")]
        assert example.charges == [1]

    def test_two_keys_do_not_pay_one_order_at_the_same_time(self, example: ModuleType) -> None:
        example.charges = Paused()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(lambda: self.post(example, "/orders/1/payment", "a"))
            assert example.charges.entered.wait(10)
            second = self.post(example, "/orders/1/payment", "b")
            example.charges.go_on.set()
            assert first.result(10).status_code == 201
        assert_refused(second, "locked")
        assert example.charges == [1]


@pytest.mark.case("S26", "S6")
def test_a_form_that_is_clicked_twice(load: Load) -> None:
    example = load("scene_form")
    client = example.app.test_client()
    form = {"idempotency_token": token_of(client, "/profile"), "nick": "ann"}
    first, second = (client.post("/profile", data=form) for _ in range(2))
    assert (first.text, second.status_code, second.data) == ("Saved.", 204, b"")
    given = [client.post("/feedback", data={"text": text}) for text in ("good", "good!")]
    assert statuses(given) == [(200, None), (429, "too_soon")]
    assert example.saved == ["ann", "good"]


@pytest.mark.case("S26", "S23")
def test_a_batch_job_and_its_audit(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    example = load("scene_batch")
    client = example.app.test_client()
    runs = [("zoe", "2026-11"), ("zoe", "2026-11"), ("max", "2026-11"), ("max", "2026-13"), ("max", "2026-13")]
    with caplog.at_level(logging.WARNING, "flask_idempotent"):
        answers = [client.post(f"/payroll/{month}", headers={"X-Admin": admin}) for admin, month in runs]
    refused = (409, "duplicate")
    assert statuses(answers) == [(200, None), refused, refused, (500, None), (409, "failed")]
    assert answers[2].json["detail"] == "This month's payroll has been started."
    assert example.paid == ["2026-11"]
    names = ["completed", "duplicate", "duplicate", "kept_failed", "refused"]
    assert [(admin, what, name) for admin, what, name, _, _ in example.audit] == [
        (admin, "payroll", name) for (admin, _), name in zip(runs, names, strict=True)
    ]
    assert len({digest for _, _, _, digest, _ in example.audit}) == 2


@pytest.mark.case("S26", "S18")
def test_a_consumer_to_which_the_broker_delivers(load: Load) -> None:
    example = load("scene_consumer")
    client = example.app.test_client()

    def deliver(number: str, attempt: int, secret: str = "only an example") -> int:
        delivery = {"message": {"id": number, "order": 17}, "attempt": attempt}
        status: int = client.post("/consume/order-paid", query_string={"secret": secret}, json=delivery).status_code
        return status

    example.app.config["MAILER_FAILS"] = True
    assert deliver("m-1", 1) == 503
    example.app.config["MAILER_FAILS"] = False
    assert [deliver("m-1", 2), deliver("m-1", 3), deliver("m-2", 1), deliver("m-3", 1, "guess")] == [204, 204, 204, 403]
    assert example.mailed == [17, 17]
