"""A tenancy as a service team writes one: FastAPI, pydantic, tarfile, PyJWT. Test only; nothing in it is taken from the
agent or from the embedded control plane, so that both are held against what these libraries really do.

The agent entrypoint is `/v1/agent/*`. Who a bearer is comes from OpenBao's `auth/token/lookup`; grants are ES256 and
their key is published for OpenBao. `/_test/*` is the tests' side: environments, bundles, switches, what was received.
A process serves any number of environments and is started in one manner (see `OPTIONS`); it ends when it is killed.
"""

import argparse
import hashlib
import io
import json
import os
import socket
import ssl
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bao", required=True, help="OpenBao's address; BAO_TOKEN may look tokens up there")
    parser.add_argument("--bao-ca", required=True, help="the CA of its certificate")
    parser.add_argument("--port-file", required=True, type=Path, help="gets the port once it listens")
    parser.add_argument("--requests", choices=["full", "narrow"], default="full", help="narrow: an older service")
    parser.add_argument("--extra", choices=["forbid", "ignore"], default="forbid", help="unknown fields in requests")
    parser.add_argument("--answers", choices=["nulls", "sparse"], default="nulls", help="null fields in answers")
    return parser.parse_args()


OPTIONS = read_options()
SPARSE = OPTIONS.answers == "sparse"

# --- what agents send -------------------------------------------------------------------------------------------------

Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Code = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]+$")]
Count = Annotated[int, Field(strict=True, ge=0)]


class Incoming(BaseModel):
    model_config = ConfigDict(extra=OPTIONS.extra)


class AgentInfo(Incoming):
    version: str
    transport: Literal["system", "proxy"]


class Facts(Incoming):
    docker: str | None
    compose: str | None
    disk_free_bytes: Count | None
    hostname: str | None
    boot_id: uuid.UUID | None
    uptime_s: Count | None


class Paused(Incoming):
    since: datetime
    until: datetime | None
    reason: str | None


class Held(Incoming):
    sha: Sha
    since: datetime


class Drifted(Incoming):
    service: str
    why: str


class NarrowCheckin(Incoming):
    env_id: str
    applied_sha: Sha | None


class FullCheckin(NarrowCheckin):
    site: str
    agent: AgentInfo
    last_result: Literal["applied", "failed", "down"] | None
    last_error: Annotated[str, Field(max_length=900, pattern=r"^[A-Z][A-Z0-9_]+: ")] | None
    facts: Facts
    failing_since: datetime | None = None
    held: Held | None = None
    paused: Paused | None = None
    drift: list[Drifted] | None = None


class NarrowLease(Incoming):
    env_id: str


class FullLease(NarrowLease):
    reason: Literal["apply", "renew"]


class Container(Incoming):
    service: str
    name: str
    image: str
    state: Literal["created", "running", "paused", "restarting", "removing", "exited", "dead"]
    health: Literal["", "starting", "healthy", "unhealthy"] | None
    exit_code: Annotated[int, Field(strict=True)] | None


class NarrowReport(Incoming):
    env_id: str
    tick_id: Annotated[str, Field(min_length=1, max_length=64)]
    result: Literal["applied", "failed", "down"]
    sha: Sha | None = None
    log_tail: Annotated[str, Field(max_length=64 * 1024)] | None = None


class FullReport(NarrowReport):
    sha: Sha | None
    code: Code | None = None
    detail: Annotated[str, Field(max_length=900)] | None = None
    containers: list[Container]
    duration_s: Annotated[float, Field(ge=0)]
    secrets: list[str]
    agent_version: str
    restored: Sha | None = None


NARROW = OPTIONS.requests == "narrow"
CheckinRequest = NarrowCheckin if NARROW else FullCheckin
LeaseRequest = NarrowLease if NARROW else FullLease
ReportRequest = NarrowReport if NARROW else FullReport

# --- what agents get --------------------------------------------------------------------------------------------------


class Vault(BaseModel):
    addr: str
    mount: str | None = None
    prefix: str | None = None
    auth_mount: str | None = None
    auth_role: str | None = None


class CheckinResponse(BaseModel):
    env_id: str
    action: Literal["apply", "none", "down"]
    desired_sha: str | None = None
    purge_volumes: bool | None = None
    bundle_url: str | None = None
    checkin_interval_s: int | None = None
    vault: Vault | None = None
    message: str | None = None


class LeaseResponse(BaseModel):
    env_id: str
    login_jwt: str
    ttl_s: int | None = None
    mount: str | None = None
    role: str | None = None
    addr: str | None = None
    vault: Vault | None = None
    wrapping_token: str | None = None
    role_id: str | None = None


class ReportResponse(BaseModel):
    accepted: bool = True
    warning: str | None = None


# --- bundles ----------------------------------------------------------------------------------------------------------


class ManifestEntry(BaseModel):
    var: str | None = None
    path: str
    version: int | None = None
    key: str | None = None
    use: str | None = None


class Manifest(BaseModel):
    version: int | None = 1
    entries: list[ManifestEntry]


class MetaFile(BaseModel):
    path: str
    sha256: str | None = None


class MetaAgent(BaseModel):
    allow_rollback: bool | None = None
    disk_need_bytes: int | None = None
    min_version: str | None = None


class Meta(BaseModel):
    env_id: str
    generation: int | None = None
    rendered_at: datetime = Field(default_factory=lambda: datetime.now(timezone.utc))
    pull: Literal["always", "missing", "never"] | None = None
    images_policy: Literal["any", "tag", "digest"] | None = None
    secrets_provider: str | None = None
    agent: MetaAgent | None = MetaAgent()
    disk: dict[str, int] | None = None
    disk_need_bytes: int | None = None
    files: list[MetaFile] | None = None
    sha: str | None = None
    address: str | None = None
    renderer: str | None = "contract"


class BundleSpec(BaseModel):
    """What a test wants a bundle to be."""

    files: dict[str, str]
    secrets: list[ManifestEntry] = []
    generation: int
    made: Literal["memory", "directory"] = "memory"


def render(env_id: str, spec: BundleSpec) -> bytes:
    texts = dict(spec.files)
    manifest = Manifest(entries=spec.secrets)
    texts["secrets.manifest.json"] = manifest.model_dump_json(exclude_none=SPARSE, indent=2)
    digests = [MetaFile(path=name, sha256=hashlib.sha256(text.encode()).hexdigest()) for name, text in texts.items()]
    provider = "openbao" if spec.secrets else "none"
    meta = Meta(env_id=env_id, generation=spec.generation, files=digests, secrets_provider=provider)
    texts["meta.json"] = meta.model_dump_json(exclude_none=SPARSE, indent=2)
    make = tar_of_directory if spec.made == "directory" else tar_in_memory
    return make({name: text.encode() for name, text in texts.items()})


def tar_of_directory(members: dict[str, bytes]) -> bytes:
    with tempfile.TemporaryDirectory() as root:
        for name, data in members.items():
            path = Path(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w") as tar:
            tar.add(root, arcname=".")
        return sink.getvalue()


def tar_in_memory(members: dict[str, bytes]) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = time.time()
            tar.addfile(info, io.BytesIO(data))
    return sink.getvalue()


# --- environments -----------------------------------------------------------------------------------------------------


class Fault(BaseModel):
    """Instead of the answer of one kind of call: an HTTPException, or with `field` FastAPI's refusal of the body."""

    status: int = 422
    detail: Any = None
    headers: dict[str, str] | None = None
    field: str | None = None
    times: int = 1_000_000


class Switches(BaseModel):
    """What a test may change; what it leaves out stays."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["apply", "none", "down"] | None = None
    sha: str | None = None
    purge_volumes: bool | None = None
    insist: bool | None = None
    lease_budget: int | None = None
    faults: dict[str, Fault] | None = None


class Environment:
    def __init__(self, env_id: str) -> None:
        self.env_id = env_id
        self.switches = Switches(action="none", lease_budget=5, insist=False, purge_volumes=False, faults={})
        self.bundles: dict[str, bytes] = {}
        self.issued: list[str] = []
        self.superseded: set[str] = set()
        self.leases: list[float] = []
        self.received: list[dict[str, Any]] = []
        self.accepted: dict[str, list[Any]] = {"checkin": [], "lease": [], "report": []}

    def grant(self) -> str:
        now = int(time.time())
        claims = {
            "iss": "tenancy",
            "aud": "openbao-see-env",
            "sub": f"agent:{self.env_id}",
            "env_id": self.env_id,
            "kind": "deploy-grant",
            "jti": str(uuid.uuid4()),
            "iat": now,
            "exp": now + 3600,
        }
        self.issued.append(claims["jti"])
        return jwt.encode(claims, GRANT_KEY, algorithm="ES256", headers={"kid": "contract"})


ENVIRONMENTS: dict[str, Environment] = {}
GRANT_KEY = ec.generate_private_key(ec.SECP256R1())

# --- who asks ---------------------------------------------------------------------------------------------------------

BAO_TLS = ssl.create_default_context(cafile=OPTIONS.bao_ca)
# Newer Pythons ask for certificate extensions that a dev server's CA has not got.
BAO_TLS.verify_flags &= ~ssl.VERIFY_X509_STRICT


def refusal(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> HTTPException:
    return HTTPException(status, detail={"code": code, "message": message}, headers=headers)


def look_up(token: str) -> dict[str, str] | None:
    request = urllib.request.Request(
        f"{OPTIONS.bao}/v1/auth/token/lookup",
        data=json.dumps({"token": token}).encode(),
        headers={"X-Vault-Token": os.environ["BAO_TOKEN"], "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, context=BAO_TLS, timeout=10) as answer:
            return json.load(answer)["data"]["meta"] or {}
    except urllib.error.HTTPError as error:
        # OpenBao's 403 "bad token" of a token that it does not know.
        if error.code in (400, 403, 404):
            return None
        raise refusal(503, "OPENBAO_UNAVAILABLE", f"OpenBao answered {error.code}") from error


def authenticate(credentials: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> Environment:
    meta = look_up(credentials.credentials)
    if meta is None:
        raise refusal(401, "AGENT_UNAUTHENTICATED", "token is unknown, expired or revoked")
    env = ENVIRONMENTS.get(meta.get("env_id", ""))
    if env is None or meta.get("grant_jti") in env.superseded:
        raise refusal(401, "AGENT_UNAUTHENTICATED", "grant was superseded")
    return env


async def admit(request: Request, env: Annotated[Environment, Depends(authenticate)]) -> Environment:
    fault = (env.switches.faults or {}).get(request.url.path.split("/")[3])
    if fault is not None and fault.times > 0:
        fault.times -= 1
        if fault.field is not None:
            place = ("body", fault.field)
            body = await request.json()
            raise RequestValidationError([{"type": "missing", "loc": place, "msg": "Field required", "input": body}])
        raise HTTPException(fault.status, detail=fault.detail, headers=fault.headers)
    return env


Admitted = Annotated[Environment, Depends(admit)]


def pin(env: Environment, env_id: str) -> None:
    if env.env_id != env_id:
        raise refusal(403, "AGENT_ENV_MISMATCH", f"token is pinned to environment {env.env_id}")


# --- the agent entrypoint ---------------------------------------------------------------------------------------------

app = FastAPI(title="tenancy")
app.add_middleware(GZipMiddleware, minimum_size=256)


@app.post("/v1/agent/checkin", response_model_exclude_none=SPARSE)
def checkin(body: CheckinRequest, env: Admitted, request: Request) -> CheckinResponse:
    pin(env, body.env_id)
    env.accepted["checkin"].append(body.model_dump(mode="json", exclude_unset=True))
    vault = Vault(
        addr=OPTIONS.bao, mount="monky", prefix=f"{env.env_id}/see", auth_mount="jwt-tenancy", auth_role="see-env"
    )
    answer = CheckinResponse(env_id=env.env_id, action="none", checkin_interval_s=60, vault=vault)
    wanted = env.switches
    if wanted.action == "down":
        answer.action = "down"
        answer.purge_volumes = wanted.purge_volumes
    elif wanted.action == "apply":
        answer.desired_sha = wanted.sha
        if body.applied_sha != wanted.sha or wanted.insist:
            answer.action = "apply"
            url = request.url_for("bundle", env_id=env.env_id, sha=wanted.sha)
            answer.bundle_url = str(url) if SPARSE else url.path
    return answer


@app.get("/v1/agent/bundle/{env_id}/{sha}")
def bundle(env_id: str, sha: str, env: Admitted) -> Response:
    pin(env, env_id)
    data = env.bundles.get(sha)
    if data is None:
        raise refusal(404, "BUNDLE_NOT_FOUND", "the desired state moved on")
    headers = {"X-Bundle-Sha256": sha}
    if SPARSE:
        pieces = (data[at : at + 1000] for at in range(0, len(data), 1000))
        return StreamingResponse(pieces, media_type="application/x-tar", headers=headers)
    return Response(data, media_type="application/x-tar", headers=headers)


@app.post("/v1/agent/lease", response_model_exclude_none=SPARSE)
def lease(body: LeaseRequest, env: Admitted) -> LeaseResponse:
    pin(env, body.env_id)
    if len(env.leases) >= env.switches.lease_budget:
        left = max(1, int(3600 - (time.time() - env.leases[0]))) if env.leases else 3600
        raise refusal(429, "LEASE_RATE_LIMITED", "five leases an hour", {"Retry-After": str(left)})
    env.leases.append(time.time())
    env.accepted["lease"].append(body.model_dump(mode="json", exclude_unset=True))
    if SPARSE:
        return LeaseResponse(env_id=env.env_id, login_jwt=env.grant())
    return LeaseResponse(
        env_id=env.env_id, login_jwt=env.grant(), ttl_s=3600, mount="jwt-tenancy", role="see-env", addr=OPTIONS.bao
    )


@app.post("/v1/agent/report", status_code=202, response_model_exclude_none=SPARSE)
def report(body: ReportRequest, env: Admitted) -> ReportResponse:
    pin(env, body.env_id)
    env.accepted["report"].append(body.model_dump(mode="json", exclude_unset=True))
    return ReportResponse()


@app.get("/.well-known/agent-jwks.json")
def jwks() -> dict[str, Any]:
    key = jwt.algorithms.ECAlgorithm.to_jwk(GRANT_KEY.public_key(), as_dict=True)
    return {"keys": [{**key, "use": "sig", "alg": "ES256", "kid": "contract"}]}


@app.middleware("http")
async def record(request: Request, call_next):
    """Keeps every request of an agent with the status that it got."""
    body = await request.body()
    response = await call_next(request)
    parts = request.url.path.split("/")
    if parts[1:3] == ["v1", "agent"]:
        try:
            parsed = json.loads(body) if body else {}
        except ValueError:
            parsed = {}
        env = ENVIRONMENTS.get(parts[4] if parts[3] == "bundle" else parsed.get("env_id", ""))
        if env is not None:
            headers = {name: request.headers.get(name) for name in ("user-agent", "content-type", "authorization")}
            env.received.append({"call": parts[3], "status": response.status_code, "body": parsed, **headers})
    return response


# --- the tests' side --------------------------------------------------------------------------------------------------


@app.post("/_test/{env_id}/kit")
def reveal_kit(env_id: str, supersede: bool = True) -> dict[str, str]:
    """A bootstrap grant; unless told otherwise, every grant before it is superseded."""
    env = ENVIRONMENTS.setdefault(env_id, Environment(env_id))
    if supersede:
        env.superseded.update(env.issued)
    return {"grant": env.grant()}


@app.post("/_test/{env_id}/bundle")
def add_bundle(env_id: str, spec: BundleSpec) -> dict[str, str]:
    data = render(env_id, spec)
    sha = hashlib.sha256(data).hexdigest()
    ENVIRONMENTS[env_id].bundles[sha] = data
    return {"sha": sha}


@app.patch("/_test/{env_id}")
def switch(env_id: str, changes: Switches) -> None:
    env = ENVIRONMENTS[env_id]
    env.switches = env.switches.model_copy(update={name: getattr(changes, name) for name in changes.model_fields_set})


@app.get("/_test/{env_id}")
def show(env_id: str) -> dict[str, Any]:
    env = ENVIRONMENTS[env_id]
    return {"received": env.received, "leases": len(env.leases), **env.accepted}


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    # The connections of whoever reads this wait in the backlog until the server takes them.
    waiting = OPTIONS.port_file.with_suffix(".new")
    waiting.write_text(str(listener.getsockname()[1]))
    waiting.rename(OPTIONS.port_file)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
