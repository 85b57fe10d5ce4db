"""A node's callbacks, signed by an implementation of RFC 9421 that is not ours: PyPI's http-message-signatures makes the base and
the MAC. Only the order of the parameters is set here, which the RFC leaves free and the gateway's profile does not."""

import base64
import collections
import datetime
import hashlib
import json
import os

import requests
from http_message_signatures import HTTPMessageSigner, HTTPSignatureKeyResolver, algorithms

BASE = os.environ["REROUTER_BASE_URL"].removesuffix("/v1")
NODE = os.environ["REROUTER_NODE_ID"]
SECRET = os.environ["REROUTER_NODE_SECRET"]
COVERED = ("@method", "@authority", "@path", "@query", "content-digest")


class Keys(HTTPSignatureKeyResolver):
    def resolve_private_key(self, key_id):
        assert key_id == f"{NODE}.1"
        return SECRET.encode()

    resolve_public_key = resolve_private_key


class Signer(HTTPMessageSigner):
    def _build_signature_base(self, message, *, covered_component_ids, signature_params, component_resolver=None):
        ordered = collections.OrderedDict((name, signature_params[name]) for name in ("created", "nonce", "keyid", "alg", "tag"))
        return super()._build_signature_base(
            message, covered_component_ids=covered_component_ids, signature_params=ordered, component_resolver=component_resolver
        )


SIGNER = Signer(signature_algorithm=algorithms.HMAC_SHA256, key_resolver=Keys())
HTTP = requests.Session()


def prepared(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    message = requests.Request(method, BASE + path, data=data, headers={"content-type": "application/json"}).prepare()
    message.headers["Host"] = BASE.split("//")[1]
    covered = COVERED if method == "POST" else COVERED[:-1]
    if method == "POST":
        digest = base64.b64encode(hashlib.sha256(data or b"").digest()).decode()
        message.headers["Content-Digest"] = f"sha-256=:{digest}:"
    nonce = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
    SIGNER.sign(
        message,
        key_id=f"{NODE}.1",
        created=datetime.datetime.now(),
        nonce=nonce,
        label="sig1",
        tag="pin-node-agent",
        covered_component_ids=covered,
        use_existing_digest=method == "POST",
    )
    return message


def call(method, path, body=None):
    return HTTP.send(prepared(method, path, body))


def expect(answer, status):
    assert answer.status_code == status, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


registration = {"version": "1.0", "endpoint": "http://127.0.0.1:9", "models": [{"id": "qwen", "context": 4096}], "labels": {"rack": "1"}}
registered = expect(call("POST", "/v1/agent/register", registration), 200)
assert registered["heartbeat_interval_s"] == 10 and registered["lease_s"] == 30, registered
beat = {"seq": 1, "status": "ready", "running": 0, "queued": 0}
assert expect(call("POST", "/v1/agent/heartbeat", beat), 200)["actions"] == []
expect(call("POST", "/v1/agent/heartbeat", beat), 409)
event = {"id": "e1", "at": datetime.datetime.now(datetime.timezone.utc).isoformat().replace("+00:00", "Z"), "level": "info", "message": "up"}
assert expect(call("POST", "/v1/agent/events", {"events": [event, event]}), 202) == {"accepted": 1, "duplicates": 1}
print("all routes: taken")

once = prepared("POST", "/v1/agent/heartbeat", {**beat, "seq": 2})
expect(HTTP.send(once), 200)
refused = HTTP.send(once)
assert expect(refused, 401)["error"] == "unauthorized" and "Date" in refused.headers, refused.headers
bent = prepared("POST", "/v1/agent/heartbeat", {**beat, "seq": 3})
bent.prepare_body(json.dumps({**beat, "seq": 4}).encode(), None)
expect(HTTP.send(bent), 401)
other = prepared("POST", "/v1/agent/heartbeat", {**beat, "seq": 5})
other.url = BASE + "/v1/agent/deregister"
expect(HTTP.send(other), 401)
expect(HTTP.post(BASE + "/v1/agent/heartbeat", json=beat), 401)
# Without a body and not POST there is no digest; the signature is good, and there is no such route.
expect(call("GET", "/v1/agent/heartbeats?x=1"), 404)
print("a replay, another body, another path, nothing: 401")
expect(call("POST", "/v1/agent/deregister"), 204)
print("done")
