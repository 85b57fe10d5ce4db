#!/usr/bin/env python3
"""Google's object store: `google_storage.py PORT ACCOUNT` writes the key of a service account into the file ACCOUNT, and serves
the requests that this account signs. Behind that is moto's S3, which answers the requests of Google's XML API for objects alike.
The bucket itself is open to the tests; /refuse takes `true` or `false`."""
import json, sys
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

PORT, ACCOUNT = int(sys.argv[1]), sys.argv[2]
key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
public = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
with open(ACCOUNT, "w") as file:
    account = {"private_key": private.decode(), "private_key_id": "1", "client_email": "captures@project.test"}
    json.dump({"type": "service_account", **account}, file)

storage, refuse = DomainDispatcherApplication(create_backend_app), False


def refused(environ):
    """The status, and the code of the error."""
    if refuse:
        return "403 Forbidden", "AccessDenied"
    try:
        claims = jwt.decode(environ["HTTP_AUTHORIZATION"].removeprefix("Bearer "), certs=public)
        assert claims["iss"] == account["client_email"] and claims["scope"].startswith("https://www.googleapis.com/auth/")
    except Exception:
        return "401 Unauthorized", "AuthenticationRequired"


def serve(environ, start):
    global refuse
    if environ["PATH_INFO"] == "/refuse":
        refuse = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])) == b"true"
        start("200 OK", [])
        return []
    answer = environ["PATH_INFO"] != "/bucket" and refused(environ)
    if not answer:
        return storage(environ, start)
    status, code = answer
    start(status, [("Content-Type", "application/xml; charset=UTF-8")])
    return [f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code></Error>".encode()]


run_simple("127.0.0.1", PORT, serve, threaded=True)
