"""The server keeps the promises of its own OpenAPI document, whatever is sent to it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.serving.conftest import StartServer
from tests.serving.models import save_model
from tests.serving.server import Server

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
)


def test_no_request_that_the_document_suggests_breaks_the_server(
    start: StartServer, shared_folder: Path, tmp_path: Path
) -> None:
    stores = ("--histories", str(shared_folder / "log.parquet"), "--events", str(tmp_path / "events.sqlite"))
    server = start(shared_folder / "model", *stores, token="sesame")
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json"]
    limits = ["--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--seed", "7", "--no-shrink"]
    quiet = ["--checks", ",".join(CHECKS), "--no-color", "--warnings", "off", "--request-timeout", "30"]
    finished = subprocess.run([*command, *limits, *quiet], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
    assert server.get("/healthz").status == 200
    assert not [line for line in server.log_lines() if line["level"] in ("error", "critical")]


@pytest.mark.parametrize(
    ("body", "is_right"),
    [
        ({"history": [100.0], "k": 3.0, "beam": 8.0}, True),
        ({"history": [100], "user_id": None}, True),
        ({"user_id": 1, "history": None}, True),
        ({"user_id": 1.0}, True),
        ({"user_id": None}, False),
        ({"user_id": None, "history": None}, False),
        ({"user_id": 1, "history": []}, False),
        ({"history": [100.5]}, False),
        ({"history": [100], "k": 3.5}, False),
        ({"history": [None]}, False),
        ({"history": [2**63]}, False),
        ({"history": [100], "beam": None}, True),
        ({"history": [100], "columns": ["title"] * 33}, False),
    ],
)
def test_the_document_and_the_server_agree_on_a_body(server: Server, body: Any, is_right: bool) -> None:
    document = server.get("/openapi.json").json
    schema = {"$ref": "#/components/schemas/RecommendBody", "components": document["components"]}
    assert jsonschema_rs.Draft202012Validator(schema).is_valid(body) == is_right
    assert (server.post("/v1/recommend", body).status == 200) == is_right


def test_integers_may_be_written_with_a_point(server: Server) -> None:
    asked = server.recommend(history=[100.0, 101], k=3.0, exclude=[105.0])
    assert asked == server.recommend(history=[100, 101], k=3, exclude=[105])
    assert server.get("/v1/items/107.0").json["item_id"] == 107
    events = {"events": [{"user_id": 40576.0, "item_id": 100.0}]}  # nobody else asks for this user
    assert server.post("/v1/events", events).json == {"accepted": 1, "unknown_ids": []}
    too_large_to_be_exact = server.post("/v1/recommend", {"history": [float(2**53 + 2)]})
    assert [detail["field"] for detail in too_large_to_be_exact.json["error"]["details"]] == ["history[0]"]


def unbounded(schema: Any, place: str, *, schemas: dict[str, Any]) -> Iterator[str]:
    """Where a schema, or one that it refers to, allows integers, texts or lists of any size.

    What a new item holds in its columns is bounded by the size of the body alone.
    """
    if isinstance(schema, list):
        for number, choice in enumerate(schema):
            yield from unbounded(choice, f"{place}[{number}]", schemas=schemas)
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from () if name == "NewItem" else unbounded(schemas[name], f"{place} > {name}", schemas=schemas)
    needed = {"integer": {"minimum", "maximum"}, "string": {"maxLength"}, "array": {"maxItems"}}
    is_listed = "enum" in schema or "const" in schema
    if not is_listed and not needed.get(schema.get("type", ""), set()) <= schema.keys():
        yield f"{place}: {schema}"
    for key in schema.keys() - {"examples", "default"}:
        yield from unbounded(schema[key], f"{place}.{key}", schemas=schemas)


def test_the_document_bounds_all_that_a_client_may_send(
    start: StartServer, shared_folder: Path, tmp_path: Path
) -> None:
    server = start(shared_folder / "model", "--events", str(tmp_path / "events.sqlite"), token="sesame")
    document = server.get("/openapi.json").json
    schemas = document["components"]["schemas"]
    found: list[str] = []
    for path, methods in document["paths"].items():
        for route in methods.values():
            body = route.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            for asked in (body, *(parameter["schema"] for parameter in route.get("parameters", ()))):
                found += unbounded(asked, path, schemas=schemas)
    assert not found
    assert server.get("/v1/items?" + "&".join(["column=title"] * 32)).status == 200
    assert server.get("/v1/items?" + "&".join(["column=title"] * 33)).status == 422


def test_ids_in_addresses_are_bounded_and_the_document_says_so(
    server: Server, start: StartServer, tmp_path: Path
) -> None:
    def schemas_of(document: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            parameter["schema"]
            for path in document["paths"].values()
            for parameter in path.get("get", {}).get("parameters", ())
            if parameter["name"] == "item_id"
        ]

    integers = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
    assert schemas_of(server.get("/openapi.json").json) == [integers] * 2
    save_model(tmp_path / "model", 60, text_ids=True)
    texts = start(tmp_path / "model")
    assert schemas_of(texts.get("/openapi.json").json) == [{"type": "string", "minLength": 1, "maxLength": 512}] * 2
    assert texts.get(f"/v1/items/{'x' * 512}").status == 404
    for path in (f"/v1/items/{'x' * 513}", f"/v1/items/{'x' * 513}/similar", f"/v1/items?id={'x' * 513}"):
        answer = texts.get(path)
        assert (answer.status, answer.code) == (422, "invalid_request")
