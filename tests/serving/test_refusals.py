"""Everything that the server says no to, and how."""

import json
import socket
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from beamtree.serving.limits import Limits
from beamtree.serving.schemas.catalogue_changes import ItemsBody
from beamtree.serving.schemas.events import EventsBody
from beamtree.serving.schemas.infer import InferBody
from beamtree.serving.schemas.recommend_body import RecommendBody
from tests.serving.server import DEADLINE, Server

JSON_POST = b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def condition(**parts: Any) -> dict[str, Any]:
    return {"history": [100], "allow": {"where": [parts]}}


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({"history": [100], "kay": 5}, "invalid_request", "kay"),
        ({"history": [100], "k": 0}, "invalid_request", "k: "),
        ({"history": [100], "k": "5"}, "invalid_request", "k: "),
        ({"history": [100], "k": 5.5}, "invalid_request", "k: "),
        ({"history": [100], "k": True}, "invalid_request", "k: "),
        ({"history": [100], "k": 1001}, "limit_exceeded", "at most 1,000 items"),
        ({"history": [100], "beam": 0}, "invalid_request", "beam"),
        ({"history": [100], "beam": 2001}, "limit_exceeded", "beam: at most 2,000"),
        ({"history": [100] * 5001}, "limit_exceeded", "history: at most 5,000"),
        ({"history": [100], "exclude": [100] * 10_001}, "limit_exceeded", "exclude: at most 10,000"),
        ({"history": [100], "allow": {"ids": [100] * 10_001}}, "limit_exceeded", "allow.ids: at most 10,000"),
        ({"requests": [{"history": [100]}] * 65}, "limit_exceeded", "requests: at most 64"),
        ({"requests": [{"history": [100], "explain": True}] * 5}, "limit_exceeded", "requests: at most 4 explanations"),
        ({"requests": [{"history": [100]}, {"history": [100], "k": 2000}]}, "limit_exceeded", "requests[1].k"),
        ({"requests": []}, "invalid_request", "requests"),
        ({"requests": [{"history": [100]}], "k": 5}, "invalid_request", "k: "),
        ({"requests": {"history": [100]}}, "invalid_request", "requests"),
        ({}, "invalid_request", "give either history or user_id"),
        ({"history": [100], "user_id": 1}, "invalid_request", "give either history or user_id"),
        ({"history": None}, "invalid_request", "give either history or user_id"),
        ([], "invalid_request", "object"),
        ("history", "invalid_request", "object"),
        (None, "invalid_request", "object"),
        ({"history": 100}, "invalid_request", "history"),
        ({"history": ["100"]}, "wrong_id_type", "history: the item ids of this model are integers, got '100'"),
        ({"history": [100, 1.5]}, "invalid_request", "history[1]: an id is an integer"),
        ({"history": [True]}, "invalid_request", "history[0]: an id"),
        ({"history": [None]}, "invalid_request", "history[0]: an id"),
        ({"history": [[100]]}, "invalid_request", "history[0]: an id"),
        ({"history": [2**63]}, "invalid_request", "history[0]: an id"),
        ({"history": ["x" * 513]}, "invalid_request", "history[0]: an id"),
        ({"history": [100], "exclude": ["101"]}, "wrong_id_type", "exclude"),
        ({"history": [100], "allow": {"ids": ["101"]}}, "wrong_id_type", "allow.ids"),
        ({"user_id": "1"}, "wrong_id_type", "user_id: the users of the log are integers"),
        ({"history": [100], "columns": ["colour"]}, "unknown_column", "category, title, year"),
        ({"history": [100], "user_features": {"city": "Oslo"}}, "wrong_features", "there is no column 'city'"),
        ({"history": [], "context": {"device": "phone"}}, "wrong_features", "was fitted without any"),
        ({"history": [100], "user_features": ["Oslo"]}, "invalid_request", "user_features: Input should be"),
        ({"history": [100], "context": {"device": {"a": 1}}}, "invalid_request", "context.device: a value is true"),
        ({"history": [100], "context": {"device": "x" * 1025}}, "invalid_request", "at most 1,024 characters"),
        ({"history": [100], "context": {"tags": ["a", ["b"]]}}, "invalid_request", "context.tags"),
        ({"history": [100], "context": {"vector": [0.5] * 4097}}, "invalid_request", "context.vector"),
        ({"history": [100], "context": {"x" * 513: 1}}, "invalid_request", "String should have at most 512"),
        (
            {"history": [100], "context": {str(name): 1 for name in range(65)}},
            "invalid_request",
            "expected at most 64 columns",
        ),
        (condition(column="colour", one_of=["red"]), "unknown_column", "category, title, year"),
        (condition(column="category"), "invalid_request", "one_of, contains, at_least or at_most"),
        (condition(column="category", one_of=[1]), "wrong_type", "holds texts"),
        (condition(column="year", one_of=["1950"]), "wrong_type", "holds numbers"),
        (condition(column="year", one_of=[True]), "wrong_type", "holds numbers"),
        (condition(column="year", contains="19"), "wrong_type", "holds numbers"),
        (condition(column="tags", at_least="a"), "wrong_type", "at_least and at_most"),
        (condition(column="category", like="D"), "invalid_request", "like"),
        (condition(column="category", contains="x" * 1025), "invalid_request", "contains: String should have at most"),
        (condition(column="category", at_least="x" * 1025), "invalid_request", "a text of at most 1,024 characters"),
        (condition(column="category", one_of=["a", ["b"]]), "invalid_request", "one_of[1]: a value is true, false, a"),
        (condition(column="category", one_of=["a"] * 1001), "invalid_request", "one_of: List should have at most 1000"),
        (condition(column="x" * 513, one_of=["a"]), "invalid_request", "column: String should have at most 512"),
        (
            {"history": [100], "allow": {"where": [{"column": "category", "contains": "a"}] * 17}},
            "invalid_request",
            "allow.where: List should have at most 16",
        ),
        ({"history": [100], "columns": ["title"] * 33}, "invalid_request", "columns: List should have at most 32"),
        ({"history": [100], "allow": {}}, "invalid_request", "allow needs ids or where"),
        ({"history": [100], "allow": [101]}, "invalid_request", "allow"),
        ({"history": [100], "unknown": "shout"}, "invalid_request", "unknown"),
    ],
)
def test_requests_that_cannot_be_answered(server: Server, body: Any, code: str, said: str) -> None:
    answer = server.post("/v1/recommend", body)
    assert (answer.status, answer.code) == (422, code)
    assert said in answer.json["error"]["message"]


def test_all_faults_are_listed(server: Server) -> None:
    answer = server.post("/v1/recommend", {"requests": [{"history": [1.5], "k": 0}, {"history": [], "beams": 1}]})
    fields = [detail["field"] for detail in answer.json["error"]["details"]]
    assert fields == ["requests[0].history[0]", "requests[0].k", "requests[1].beams"]


def repeated(before: bytes, fault: bytes, after: bytes) -> bytes:
    """A body with a hundred thousand faults."""
    return before + b",".join([fault] * 100_000) + after


@pytest.mark.parametrize(
    ("body", "type_of"),
    [
        (repeated(b'{"history":[', b"{}", b"]}"), RecommendBody),
        (repeated(b'{"history":[1],"exclude":[', b"null", b"]}"), RecommendBody),
        (repeated(b'{"history":[1],"columns":[', b"1", b"]}"), RecommendBody),
        (repeated(b'{"history":[1],"allow":{"ids":[', b"1.5", b"]}}"), RecommendBody),
        (repeated(b'{"history":[1],"allow":{"where":[', b"{}", b"]}}"), RecommendBody),
        (repeated(b'{"history":[1],"allow":{"where":[{"column":"a","one_of":[', b"{}", b"]}]}}"), RecommendBody),
        (repeated(b'{"history":[1],"context":{"vector":[', b"{}", b"]}}"), RecommendBody),
        (repeated(b'{"requests":[', b"{}", b"]}"), RecommendBody),
        (repeated(b'{"events":[', b"{}", b"]}"), EventsBody),
        (repeated(b'{"add":[', b"{}", b"]}"), ItemsBody),
        (repeated(b'{"add":[{"item_id":1,"tags":[', b"{}", b"]}]}"), ItemsBody),
        (repeated(b'{"remove":[', b"{}", b"]}"), ItemsBody),
        (repeated(b'{"inputs":[', b"{}", b"]}"), InferBody),
        (b'{"history":[1],"context":{%b}}' % b",".join(b'"%d":{}' % name for name in range(100_000)), RecommendBody),
    ],
)
def test_few_of_very_many_faults_are_looked_for(body: bytes, type_of: Any) -> None:
    """Each takes some microseconds, in which nobody else is answered."""
    with pytest.raises(ValidationError) as raised:
        TypeAdapter(type_of).validate_json(body, context=Limits())
    assert raised.value.error_count() <= 20


def test_very_many_fields_that_do_not_exist_are_counted(server: Server) -> None:
    answer = server.post("/v1/recommend", {"history": [100]} | {f"x{number}": 1 for number in range(50_000)})
    assert (answer.status, answer.code) == (422, "invalid_request")
    assert answer.json["error"]["message"].startswith("The body has 50,000 faults, too many to list.")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"{'history': []}", b'{"history": ["\\ud800"]}', b"\xff\xfe", b"[" * 5000],
)
def test_what_is_not_json(server: Server, body: bytes) -> None:
    answer = server.call("POST", "/v1/recommend", body=body, headers={"Content-Type": "application/json"})
    assert (answer.status, answer.code) == (400, "bad_json")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_bodies_that_do_not_say_they_are_json(server: Server, content_type: str) -> None:
    answer = server.call("POST", "/v1/recommend", body=b'{"history":[]}', headers={"Content-Type": content_type})
    assert (answer.status, answer.code) == (415, "not_json")


def test_a_large_body_is_refused_before_it_is_sent(server: Server) -> None:
    head = (
        b"POST /v1/recommend HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1048577\r\n\r\n"
    )
    assert b"413" in exchange(server, head).split(b"\r\n")[0]


def test_a_large_body_of_unknown_length_is_refused_while_it_is_sent(server: Server) -> None:
    head = JSON_POST + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    answer = exchange(server, head, *[chunk] * 17)
    assert b"413" in answer.split(b"\r\n")[0]
    assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == "body_too_large"


def test_headers_without_end_are_refused(server: Server) -> None:
    answer = exchange(server, b"GET /healthz HTTP/1.1\r\n", b"X-Long: ", *[b"a" * 8192] * 9)
    assert b"431" in answer.split(b"\r\n")[0]


def exchange(server: Server, *parts: bytes) -> bytes:
    """Send parts as long as the server listens, and return all that it says before it hangs up."""
    answer = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        try:
            while received := connection.recv(65_536):
                answer += received
        except ConnectionResetError:
            pass
    return answer


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"events": []}, "invalid_request"),
        ({"events": [{"user_id": 1}]}, "invalid_request"),
        ({"events": [{"user_id": None, "item_id": 100}]}, "invalid_request"),
        ({"events": [{"user_id": 1, "item_id": None}]}, "invalid_request"),
        ({"events": [{"user_id": 1, "item_id": 100, "rating": 5}]}, "invalid_request"),
        ({"events": [{"user_id": 1, "item_id": 100, "timestamp": "now"}]}, "invalid_request"),
        ({"events": [{"user_id": "1", "item_id": 100}]}, "wrong_id_type"),
        ({"events": [{"user_id": 1, "item_id": "100"}]}, "wrong_id_type"),
        ({"events": [{"user_id": 1, "item_id": 100}] * 1001}, "limit_exceeded"),
    ],
)
def test_events_that_cannot_be_taken(server: Server, body: Any, code: str) -> None:
    answer = server.post("/v1/events", body)
    assert (answer.status, answer.code) == (422, code)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/items/abc", 422, "wrong_id_type"),
        ("/v1/items/99", 404, "unknown_item"),
        ("/v1/items/99999999999999999999999", 422, "wrong_id_type"),
        ("/v1/items/99/similar", 404, "unknown_item"),
        ("/v1/items/100/similar?k=0", 422, "invalid_request"),
        ("/v1/items/100/similar?by=magic", 422, "invalid_request"),
        ("/v1/items/100/similar?column=colour", 422, "unknown_column"),
        ("/v1/items?limit=101", 422, "invalid_request"),
        ("/v1/items?search=" + "x" * 201, 422, "invalid_request"),
        ("/v1/tree/nodes/7/0", 404, "no_such_node"),
        ("/v1/tree/nodes/3/8", 404, "no_such_node"),
        ("/v1/tree/nodes/-1/0", 422, "invalid_request"),
        ("/v1/tree/nodes/x/0", 422, "invalid_request"),
        ("/v1/tree/nodes/99999999999999999999/0", 422, "invalid_request"),
        ("/v2/recommend", 404, "no_such_address"),
        ("/v1/recommend", 405, "wrong_method"),
        ("/../../etc/passwd", 404, "no_such_address"),
        ("/admin/reload", 404, "no_such_address"),
    ],
)
def test_addresses_that_lead_nowhere(server: Server, path: str, status: int, code: str) -> None:
    answer = server.get(path)
    assert (answer.status, answer.code) == (status, code)


def test_without_a_token_there_are_no_admin_routes(server: Server) -> None:
    assert server.post("/admin/reload", Authorization="Bearer ").status == 404
    assert server.post("/admin/rollback", Authorization="Bearer x").status == 404
    assert not [path for path in server.get("/openapi.json").json["paths"] if path.startswith("/admin")]


def test_a_misspelt_field_is_named_as_such(server: Server) -> None:
    answer = server.post("/v1/recommend", {"histroy": [100]})
    assert answer.status == 422
    assert answer.json["error"]["message"].startswith("histroy: there is no such field")
