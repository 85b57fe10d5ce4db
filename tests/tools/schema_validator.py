#!/usr/bin/env python3
"""Validates documents. The first line of standard input is the schema, each other one a document, all in JSON. Prints a line
for each document: the list of what the schema finds wrong."""
import json, sys
import jsonschema_rs

schema = json.loads(sys.stdin.readline())
jsonschema_rs.meta.validate(schema)
validator = jsonschema_rs.Draft7Validator(schema)
for line in sys.stdin:
    found = validator.iter_errors(json.loads(line))
    print(json.dumps([f"{error.instance_path}: {error.message}" for error in found]))
