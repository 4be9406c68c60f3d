"""A catalog that speaks Iceberg's REST protocol, as far as Spark needs it, over PyIceberg's SQL catalog.

Source: Iceberg's REST catalog specification (open-api/rest-catalog-open-api.yaml).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import unquote, urlparse

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

LEVELS = "\x1f"
"""Between the levels of a namespace in a path."""
ERRORS = {
    NoSuchTableError: (404, "NoSuchTableException"),
    NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    CommitFailedException: (409, "CommitFailedException"),
}


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Serve a catalog whose tables are in a folder. Yields its URI."""
    catalog = RestCatalog(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        do_HEAD = do_POST = do_GET

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            code, said = catalog.answer(self.command, self.path, json.loads(body or b"{}"))
            data = b"" if said is None or self.command == "HEAD" else said.encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            catalog.close()


class RestCatalog:
    """Answers requests."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._warehouse = f"file://{folder}"
        database = f"sqlite:///{folder / 'catalog.db'}"
        self._catalog = SqlCatalog("rest", uri=database, warehouse=self._warehouse)
        self._lock = Lock()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, str | None]:
        """Returns the status and the body of an answer."""
        words = [unquote(word) for word in urlparse(path).path.removeprefix("/v1/").split("/")]
        try:
            with self._lock:
                return 200, self._done(method, words, body)
        except tuple(ERRORS) as error:
            code, kind = ERRORS[type(error)]
            said = {"message": str(error), "type": kind, "code": code}
            return code, json.dumps({"error": said})

    def close(self) -> None:
        self._catalog.close()

    def _done(self, method: str, words: list[str], body: dict[str, Any]) -> str:
        match method, words:
            case "GET", ["config"]:
                return json.dumps({"defaults": {}, "overrides": {}})
            case "POST", ["namespaces"]:
                self._catalog.create_namespace(tuple(body["namespace"]))
                return json.dumps({"namespace": body["namespace"], "properties": {}})
            case "GET" | "HEAD", ["namespaces", namespace]:
                levels = tuple(namespace.split(LEVELS))
                self._catalog.load_namespace_properties(levels)
                return json.dumps({"namespace": list(levels), "properties": {}})
            case "POST", ["namespaces", namespace, "tables"]:
                return self._create(tuple(namespace.split(LEVELS)), body)
            case "GET" | "HEAD", ["namespaces", namespace, "tables", name]:
                table = self._catalog.load_table((*namespace.split(LEVELS), name))
                return loaded(table.metadata, table.metadata_location)
            case "POST", ["namespaces", namespace, "tables", name]:
                return self._commit((*namespace.split(LEVELS), name), body)
            case "POST", ["namespaces", _, "tables", _, "metrics"]:
                return "{}"
            case _:
                raise NotImplementedError((method, words))

    def _create(self, namespace: tuple[str, ...], body: dict[str, Any]) -> str:
        """Create a table; a staged one exists once its first commit comes."""
        asked = CreateTableRequest.model_validate({"location": None, **body})
        identifier = (*namespace, asked.name)
        location = asked.location or f"{self._warehouse}/{'/'.join(identifier)}"
        spec = asked.partition_spec or UNPARTITIONED_PARTITION_SPEC
        order = asked.write_order or UNSORTED_SORT_ORDER
        if asked.stage_create:
            properties = dict(asked.properties)
            made = new_table_metadata(asked.table_schema, spec, order, location, properties)
            return loaded(made, None)
        table = self._catalog.create_table(
            identifier, asked.table_schema, location, spec, order, asked.properties
        )
        return loaded(table.metadata, table.metadata_location)

    def _commit(self, identifier: tuple[str, ...], body: dict[str, Any]) -> str:
        named = {"identifier": {"namespace": identifier[:-1], "name": identifier[-1]}}
        asked = CommitTableRequest.model_validate({**named, **body})
        unread: Any = None
        table = Table(identifier, unread, "", PyArrowFileIO(), self._catalog)
        done = self._catalog.commit_table(table, asked.requirements, asked.updates)
        return loaded(done.metadata, done.metadata_location)


def loaded(metadata: TableMetadata, location: str | None) -> str:
    said = {"metadata": json.loads(metadata.model_dump_json()), "config": {}}
    return json.dumps(said if location is None else {"metadata-location": location, **said})
