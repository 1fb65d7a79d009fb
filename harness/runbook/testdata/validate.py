"""Reports for each line of standard input {"schema": FILE, "text": DOCUMENT} whether Python's jsonschema accepts it.

Prints one word a line, accept or reject. What JSON itself leaves open is decided here as the C++ reader decides it:
duplicate keys, non-finite numbers and nesting deeper than 64 are rejected, // and /* */ comments are taken.
"""
import json
import math
import re
import sys

import jsonschema

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.S)


def without_comments(text):
    return TOKEN.sub(lambda m: m[0] if m[0].startswith('"') else " ", text)


def unique(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("duplicate key")
    return dict(pairs)


def finite(text):
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("not finite")
    return value


def no_constant(text):
    raise ValueError(text)


def depth(value):
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(depth, children), default=0)


def accepts(validator, text):
    try:
        value = json.loads(without_comments(text), object_pairs_hook=unique, parse_float=finite,
                           parse_constant=no_constant)
    except (ValueError, RecursionError):
        return False
    return depth(value) <= 64 and validator.is_valid(value)


def main():
    validators = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = request["schema"]
        if name not in validators:
            with open(name, encoding="utf-8") as file:
                schema = json.load(file)
            jsonschema.Draft202012Validator.check_schema(schema)
            validators[name] = jsonschema.Draft202012Validator(schema)
        print("accept" if accepts(validators[name], request["text"]) else "reject")


main()
