"""Asking a running `agentfsd ui` as a program would, with or without what a browser has."""

import http.client
import json
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from typing import Any, BinaryIO
from urllib.parse import urlencode, urlsplit


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json", self.text
        return json.loads(self.body)


class Visitor:
    """*address*: as `agentfsd ui` prints it; its host need be known to nobody but browsers. Sends the cookie once enter() has got
    one."""

    def __init__(self, address: str) -> None:
        self.address = urlsplit(address)
        self.token = self.address.query.removeprefix("token=")
        self.cookie = ""

    def enter(self) -> "Visitor":
        found = self.get(f"/?token={self.token}")
        assert found.status == 303
        self.cookie = found.headers["set-cookie"].split(";")[0]
        return self

    def get(self, path: str, headers: Mapping[str, str] = {}, method: str = "GET", body: str | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port or 0, timeout=30)
        try:
            cookie = {"cookie": self.cookie} if self.cookie else {}
            connection.request(method, path, body, {"host": self.address.netloc, **cookie, **headers})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def post(self, path: str, form: Mapping[str, str], headers: Mapping[str, str] = {}) -> Answer:
        own = {"origin": f"http://{self.address.netloc}", "content-type": "application/x-www-form-urlencoded"}
        return self.get(path, {**own, **headers}, "POST", urlencode(form, errors="surrogateescape"))

    def form(self, page: str) -> dict[str, str]:
        """What the form of a page holds that changes something."""
        text = self.get(page).text.split('<form method="post"')[1]
        return {name: unescape(value) for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', text)}

    def csrf(self, page: str) -> str:
        return self.form(page)["csrf"]


@contextmanager
def listening(visitor: Visitor, query: str = "") -> Iterator[BinaryIO]:
    """The stream of events, when it has begun."""
    head = f"GET /api/events?{query} HTTP/1.1\r\nHost: {visitor.address.netloc}\r\nCookie: {visitor.cookie}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", visitor.address.port or 0), timeout=20) as connection:
        connection.sendall(head.encode())
        with connection.makefile("rb") as stream:
            while (line := stream.readline()) != b"event: begun\n":
                assert line, "the stream ended before it began"
            yield stream
