"""A small Hub on the loopback: what huggingface_hub asks of the real one to publish a model and to load it again.

It keeps repositories as commits of whole trees, and large files by their hash, as the Hub does; a commit is made whole
or not at all, on top of the parent that the client names. Uploads are those of Git LFS, in one part or in several:
Xet's own protocol is binary and belongs to another service, so clients have to be told not to use it
(HF_HUB_DISABLE_XET).

`fail` puts faults in.
"""

import base64
import hashlib
import json
import re
import socket
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

LARGE = 50_000
"""Files of that many bytes and all weights are large files."""

PART = 20_000
"""Those are uploaded in parts of so many bytes."""


@dataclass(frozen=True)
class File:
    content: bytes
    is_large: bool

    @property
    def oid(self) -> str:
        """As Git has it; of large files that of their content, which is what clients compare."""
        if self.is_large:
            return hashlib.sha256(self.content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content, usedforsecurity=False).hexdigest()

    def listed(self, path: str) -> dict[str, Any]:
        entry = {"type": "file", "path": path, "oid": self.oid[:40], "size": len(self.content)}
        if self.is_large:
            entry["lfs"] = {"oid": self.oid, "size": len(self.content), "pointerSize": 134}
        return entry


@dataclass(frozen=True)
class Commit:
    oid: str
    title: str
    files: dict[str, File]


@dataclass
class Repository:
    name: str
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    """Branches and pull requests -> hash of a commit."""
    tags: dict[str, str] = field(default_factory=dict)

    def commit(self, ref: str, title: str, files: dict[str, File]) -> Commit:
        names = "".join(f"{name} {file.oid}\n" for name, file in sorted(files.items()))
        oid = hashlib.sha1(f"{len(self.commits)} {title}\n{names}".encode(), usedforsecurity=False).hexdigest()
        self.commits[oid] = Commit(oid, title, files)
        self.refs[ref] = oid
        return self.commits[oid]

    def find(self, revision: str) -> Commit | None:
        oid = self.refs.get(revision) or self.tags.get(revision) or revision
        return self.commits.get(oid)

    @property
    def head(self) -> Commit:
        return self.commits[self.refs["main"]]


class Refused(Exception):  # noqa: N818 - an answer of the server
    """An answer that is no success."""

    def __init__(self, status: int, message: str = "", code: str = "", **headers: str):
        self.status, self.message = status, message
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if code:
            self.headers["X-Error-Code"] = code
        if message:
            self.headers["X-Error-Message"] = message


@dataclass
class Hub:
    """What is on the server."""

    tokens: dict[str, tuple[str, bool]] = field(
        default_factory=lambda: {"hf_of_me": ("me", True), "hf_reads": ("me", False)}
    )
    """Token -> user, and whether it may write."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    large_files: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    collections: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    """`METHOD path` of all that was asked, in order."""

    authorizations: list[tuple[str, str]] = field(default_factory=list)
    """Path and header."""

    sleeps: list[float] = field(default_factory=list)
    """Seconds that the client would have waited between attempts."""

    sent_bytes: int = 0
    """Of large files, by clients."""

    endpoint: str = ""
    errors: list[str] = field(default_factory=list)
    """Of the server itself."""

    faults: list[tuple[re.Pattern[str], deque[Any]]] = field(default_factory=list)

    def fail(self, pattern: str, *answers: int | str | Refused | Callable[[], Any]) -> None:
        """Answers the next requests whose `METHOD path` is found by a pattern otherwise.

        A status, or `Refused`: with that. "drop": the connection ends in the middle of the request. "lose": it is
        carried out, and the connection ends without an answer. "truncate": half of the content. "ok": as it should be.
        A function: after calling it.
        """
        self.faults.append((re.compile(pattern), deque(answers)))

    def next_fault(self, request: str) -> Any:
        for pattern, answers in self.faults:
            if answers and pattern.search(request):
                return answers.popleft()
        return None

    def count(self, pattern: str) -> int:
        return sum(bool(re.search(pattern, request)) for request in self.requests)

    def files(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        commit = self.repositories[repo_id].find(revision)
        assert commit is not None
        return {name: file.content for name, file in commit.files.items()}

    def change(self, repo_id: str, name: str, content: bytes, ref: str = "main") -> Commit:
        """A commit by someone else."""
        repository = self.repositories[repo_id]
        files = {**repository.head.files, name: File(content, False)}
        return repository.commit(ref, f"Change {name}", files)


def make_handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16  # head and body in one packet: without it each answer waits for an acknowledgement

        def log_message(self, *arguments: object) -> None: ...

        def handle_request(self) -> None:
            url = urlsplit(self.path)
            path = unquote(url.path) if "/revision/" not in url.path else url.path
            request = f"{self.command} {path}"
            hub.requests.append(request)
            hub.authorizations.append((path, self.headers.get("Authorization", "")))
            fault = hub.next_fault(request)
            if fault == "drop":
                self.rfile.read(min(1000, int(self.headers.get("Content-Length", 0)) // 2))
                self.hang_up()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                if callable(fault):
                    fault()
                if isinstance(fault, int):
                    raise Refused(fault)  # noqa: TRY301
                if isinstance(fault, Refused):
                    raise fault
                answer = Answers(hub, self.headers, parse_qs(url.query), body).find(self.command, url.path)
            except Refused as refused:
                content = json.dumps({"error": refused.message}).encode()
                answer = Answer(content, status=refused.status, headers=refused.headers)
            if fault == "lose":
                self.hang_up()
            else:
                self.send(answer, cut=fault == "truncate")

        def hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def send(self, answer: "Answer", *, cut: bool) -> None:
            content = answer.content
            self.send_response(answer.status)
            for name, value in {"Content-Length": str(len(content)), **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[: len(content) // 2] if cut else content)
            if cut:
                self.wfile.flush()
                self.hang_up()

        do_GET = do_HEAD = do_POST = do_PUT = handle_request  # noqa: N815

    return Handler


@dataclass(frozen=True)
class Answer:
    content: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def of_json(value: Any) -> Answer:
    return Answer(json.dumps(value).encode(), headers={"Content-Type": "application/json"})


ROUTES: list[tuple[re.Pattern[str], str]] = []
LOCK = threading.Lock()


def route(pattern: str) -> Callable[[Any], Any]:
    def register(method: Any) -> Any:
        ROUTES.append((re.compile(f"{pattern}$"), method.__name__))
        return method

    return register


REPO = r"(?P<repo>[^/]+/[^/]+)"


class Answers:
    """The answer to one request."""

    def __init__(self, hub: Hub, headers: Any, query: dict[str, list[str]], body: bytes):
        self.hub, self.headers, self.query, self.body = hub, headers, query, body

    def find(self, method: str, path: str) -> Answer:
        for pattern, name in ROUTES:
            if match := pattern.match(f"{'GET' if method == 'HEAD' else method} {path}"):
                with LOCK:
                    groups = {key: unquote(value) for key, value in match.groupdict().items() if value}
                    answer: Answer = getattr(self, name)(**groups)
                return answer
        raise Refused(404, f"no such page: {path}", "EntryNotFound")

    # Who asks

    def user(self) -> tuple[str, bool] | None:
        authorization = self.headers.get("Authorization")
        if authorization is None:
            return None
        if (user := self.hub.tokens.get(authorization.removeprefix("Bearer "))) is None:
            raise Refused(401, "Invalid credentials in Authorization header")
        return user

    def writer(self) -> str:
        user = self.user()
        if user is None:
            raise Refused(401, "Invalid username or password.")
        if not user[1]:
            raise Refused(403, "Forbidden: this token can only read")
        return user[0]

    def repository(self, repo: str) -> Repository:
        user = self.user()
        found = self.hub.repositories.get(repo)
        if found is None or (found.private and (user is None or user[0] != repo.split("/")[0])):
            raise Refused(401 if user is None else 404, "Repository not found", "RepoNotFound")
        return found

    def at(self, repo: str, revision: str) -> tuple[Repository, Commit]:
        repository = self.repository(repo)
        if (commit := repository.find(revision)) is None:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return repository, commit

    # Pages

    @route("GET /api/whoami-v2")
    def whoami(self) -> Answer:
        if (user := self.user()) is None:
            raise Refused(401, "Invalid username or password.")
        return of_json({"name": user[0], "type": "user", "orgs": [], "auth": {"accessToken": {"role": "write"}}})

    @route("POST /api/repos/create")
    def create(self) -> Answer:
        asked, owner = json.loads(self.body), self.writer()
        if (asked["organization"] or owner) != owner:
            raise Refused(403, f"You don't have the rights to create a model for {asked['organization']}")
        name = f"{owner}/{asked['name']}"
        if asked["name"] == "con":
            raise Refused(400, "Invalid repo name: con is reserved")
        address = {"url": f"{self.hub.endpoint}/{name}", "name": name}
        if name in self.hub.repositories:
            answer = json.dumps(address | {"error": "You already created this model repo"}).encode()
            return Answer(answer, status=409)
        repository = Repository(name, private=asked.get("visibility") == "private")
        repository.commit("main", "initial commit", {".gitattributes": File(b"*.safetensors filter=lfs\n", False)})
        self.hub.repositories[name] = repository
        return of_json(address)

    @route(f"GET /api/models/{REPO}(?:/revision/(?P<revision>[^/]+))?")
    def model_info(self, repo: str, revision: str | None = None) -> Answer:
        repository, commit = self.at(repo, revision or "main")
        siblings = [{"rfilename": name} for name in commit.files]
        return of_json({"id": repo, "sha": commit.oid, "private": repository.private, "siblings": siblings})

    @route(f"GET /api/models/{REPO}/tree/(?P<revision>[^/]+)(?:/(?P<folder>.+))?")
    def tree(self, repo: str, revision: str, folder: str | None = None) -> Answer:
        _, commit = self.at(repo, revision)
        under = {name: file for name, file in commit.files.items() if folder is None or name.startswith(f"{folder}/")}
        if folder is not None and not under:
            raise Refused(404, f"{folder} does not exist", "EntryNotFound")
        return of_json([file.listed(name) for name, file in under.items()])

    @route(f"GET /api/models/{REPO}/refs")
    def refs(self, repo: str) -> Answer:
        repository = self.repository(repo)

        def listed(kind: str, refs: dict[str, str]) -> list[dict[str, str]]:
            return [{"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": oid} for name, oid in refs.items()]

        return of_json(
            {"branches": listed("heads", repository.refs), "converts": [], "tags": listed("tags", repository.tags)}
        )

    @route(f"POST /api/models/{REPO}/tag/(?P<revision>[^/]+)")
    def tag(self, repo: str, revision: str) -> Answer:
        self.writer()
        repository, commit = self.at(repo, revision)
        if (name := json.loads(self.body)["tag"]) in repository.tags:
            raise Refused(409, f"Tag {name} already exists")
        repository.tags[name] = commit.oid
        return of_json({})

    @route("POST /api/validate-yaml")
    def validate(self) -> Answer:
        content = json.loads(self.body)["content"]
        models = yaml.safe_load(content.split("---")[1])["model-index"]
        if not all({"name", "results"} <= model.keys() for model in models):
            return Answer(json.dumps({"errors": [{"message": "bad model-index"}]}).encode(), status=400)
        return of_json({"errors": [], "warnings": []})

    # Uploads

    @route(f"POST /api/models/{REPO}/preupload/(?P<revision>[^/]+)")
    def preupload(self, repo: str, revision: str) -> Answer:
        if "create_pr" not in self.query:
            self.writer()
        _, commit = self.at(repo, revision)
        files = []
        for file in json.loads(self.body)["files"]:
            name = file["path"]
            mode = "lfs" if name.endswith(".safetensors") or file["size"] > LARGE else "regular"
            known = commit.files.get(name)
            files.append({"path": name, "uploadMode": mode, "shouldIgnore": False, "oid": known.oid if known else None})
        return of_json({"files": files})

    @route(rf"POST /{REPO}\.git/info/lfs/objects/batch")
    def batch(self, repo: str) -> Answer:
        self.repository(repo)
        objects = []
        for item in json.loads(self.body)["objects"]:
            if item["oid"] not in self.hub.large_files:
                href, size = f"{self.hub.endpoint}/storage/{item['oid']}", item["size"]
                if size <= PART:
                    upload = {"href": f"{href}?signature=secret"}
                else:
                    parts = {str(part + 1): f"{href}/{part + 1}?signature=secret" for part in range(-(-size // PART))}
                    upload = {"href": f"{href}/complete", "header": {"chunk_size": str(PART), **parts}}
                item["actions"] = {"upload": upload, "verify": {"href": f"{href}/verify"}}
            objects.append(item)
        return of_json({"transfer": "multipart", "objects": objects})

    @route("PUT /storage/(?P<oid>[0-9a-f]+)")
    def put_whole(self, oid: str) -> Answer:
        return self.store(oid, self.body, sent=len(self.body))

    @route("PUT /storage/(?P<oid>[0-9a-f]+)/(?P<part>[0-9]+)")
    def put_part(self, oid: str, part: str) -> Answer:
        self.hub.parts.setdefault(oid, {})[int(part)] = self.body
        self.hub.sent_bytes += len(self.body)
        return Answer(b"", headers={"ETag": f'"{hashlib.md5(self.body, usedforsecurity=False).hexdigest()}"'})

    @route("POST /storage/(?P<oid>[0-9a-f]+)/complete")
    def complete(self, oid: str) -> Answer:
        numbers = [part["partNumber"] for part in json.loads(self.body)["parts"]]
        return self.store(oid, b"".join(self.hub.parts[oid][number] for number in numbers), sent=0)

    def store(self, oid: str, content: bytes, sent: int) -> Answer:
        if hashlib.sha256(content).hexdigest() != oid:
            raise Refused(400, "the content has another hash")
        self.hub.large_files[oid] = content
        self.hub.sent_bytes += sent
        return of_json({})

    @route("POST /storage/(?P<oid>[0-9a-f]+)/verify")
    def verify(self, oid: str) -> Answer:
        if oid not in self.hub.large_files:
            raise Refused(404, "no such object")
        return of_json({})

    @route(f"POST /api/models/{REPO}/commit/(?P<revision>[^/]+)")
    def commit(self, repo: str, revision: str) -> Answer:
        asks_to_pull = "create_pr" in self.query
        if not asks_to_pull:
            self.writer()
        repository, parent = self.at(repo, revision)
        lines = [json.loads(line) for line in self.body.splitlines()]
        header = lines[0]["value"]
        if header.get("parentCommit") not in (None, parent.oid):
            raise Refused(412, "A commit has happened since. Please refresh and try again.")
        files = dict(parent.files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "deletedFile":
                if files.pop(value["path"], None) is None:
                    raise Refused(404, "A file with this name doesn't exist", "EntryNotFound")
            elif line["key"] == "file":
                files[value["path"]] = File(base64.b64decode(value["content"]), False)
            elif value["oid"] not in self.hub.large_files:
                raise Refused(400, f"LFS pointer pointed to a file that does not exist: {value['path']}")
            else:
                files[value["path"]] = File(self.hub.large_files[value["oid"]], True)
        pulls = sum(ref.startswith("refs/pr/") for ref in repository.refs) + 1
        commit = repository.commit(f"refs/pr/{pulls}" if asks_to_pull else revision, header["summary"], files)
        pull = f"{self.hub.endpoint}/{repo}/discussions/{pulls}" if asks_to_pull else None
        address = f"{self.hub.endpoint}/{repo}/commit/{commit.oid}"
        return of_json({"success": True, "commitOid": commit.oid, "commitUrl": address, "pullRequestUrl": pull})

    # Collections

    @route("POST /api/collections")
    def create_collection(self) -> Answer:
        asked = json.loads(self.body)
        slug = f"{asked['namespace']}/{asked['title'].lower().replace(' ', '-')}-64f9a55bb3115b4f513ec026"
        if slug in self.hub.collections:
            content = json.dumps({"error": "it is there", "slug": slug}).encode()
            return Answer(content, status=409)
        self.hub.collections[slug] = {
            "slug": slug, "title": asked["title"], "owner": self.writer(), "items": [], "position": 0,
            "lastUpdated": "2026-01-01T00:00:00.000Z", "private": asked["private"], "theme": "blue", "upvotes": 0,
        }  # fmt: skip
        return of_json(self.hub.collections[slug])

    @route("GET /api/collections/(?P<slug>.+)")
    def collection(self, slug: str) -> Answer:
        if slug not in self.hub.collections:
            raise Refused(404, "Collection not found")
        return of_json(self.hub.collections[slug])

    @route("POST /api/collections/(?P<slug>.+)/items")
    def add_item(self, slug: str) -> Answer:
        if slug not in self.hub.collections:
            raise Refused(404, "Collection not found")
        collection, item = self.hub.collections[slug], json.loads(self.body)["item"]
        if item["id"] in [other["id"] for other in collection["items"]]:
            raise Refused(409, "it is in it")
        collection["items"].append({"_id": "1", "position": 0, **item})
        return of_json(collection)

    # Downloads

    @route(f"GET /{REPO}/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
    def resolve(self, repo: str, revision: str, name: str) -> Answer:
        _, commit = self.at(repo, revision)
        headers = {"X-Repo-Commit": commit.oid}
        if (file := commit.files.get(name)) is None:
            raise Refused(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": commit.oid})
        if not file.is_large:
            return self.with_ranges(file.content, headers | {"ETag": f'"{file.oid}"'})
        headers |= {"X-Linked-ETag": f'"{file.oid}"', "X-Linked-Size": str(len(file.content))}
        elsewhere = self.hub.endpoint.replace("127.0.0.1", "localhost")  # another host, which gets no token
        return Answer(b"", 302, headers | {"Location": f"{elsewhere}/storage/{file.oid}"})

    @route("GET /storage/(?P<oid>[0-9a-f]+)")
    def storage(self, oid: str) -> Answer:
        return self.with_ranges(self.hub.large_files[oid], {"ETag": f'"{oid}"'})

    def with_ranges(self, content: bytes, headers: dict[str, str]) -> Answer:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked is None:
            return Answer(content, headers=headers)
        first = int(asked[1])
        span = {"Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"}
        return Answer(content[first:], 206, headers | span)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    hub: Hub

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # that the client has had enough
            self.hub.errors.append(traceback.format_exc())


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """A Hub at `Hub.endpoint`, as long as the context lasts."""
    hub = Hub()
    server = Server(("127.0.0.1", 0), make_handler(hub))
    server.hub = hub
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert not hub.errors, hub.errors[0]
