"""Writes what the fuzzers begin with beside their seeds: the requests and answers of recorded exchanges, and their codings.

corpus.py DIRECTORY RECORDED.jsonl…
"""

import gzip
import hashlib
import json
import pathlib
import sys
import zlib


def main():
    directory, recorded = pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]]
    for target in ("edits", "events", "coding", "requests", "answers"):
        (directory / target).mkdir(parents=True, exist_ok=True)

    def write(target, data):
        if len(data) <= 16384:
            (directory / target / hashlib.sha1(data).hexdigest()).write_bytes(data)

    for line in (line for file in recorded for line in file.read_text().splitlines()):
        exchange = json.loads(line)
        if not isinstance(exchange.get("request"), dict):
            continue
        request = json.dumps(exchange["request"]).encode()
        answer = (exchange.get("response") or "").encode()
        write("edits", request)
        if exchange.get("stream"):
            write("events", bytes([len(answer) % 256]) + answer)
        kind = exchange.get("kind") or ("messages" if "messages" in exchange["path"] else "responses")
        if kind in ("chat", "messages", "responses"):
            source = ("chat", "messages", "responses").index(kind)
            write("requests", bytes([source]) + request)
            for client in range(3):
                write("answers", bytes([len(answer) % 256, source + 4 * client]) + answer)
        for which, coded in enumerate((gzip.compress(request), zlib.compress(request))):
            write("coding", bytes([len(request) % 256, which]) + coded)


main()
