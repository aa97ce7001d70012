"""Random walks under the mask of each schema must be valid for an independent validator.

    walk.py PROBE MODEL SCHEMAS.jsonl [SEEDS]

Needs the Python package jsonschema.  Exits with 77 and a reason where it is missing.
"""

import datetime
import ipaddress
import json
import re
import subprocess
import sys
import uuid

try:
    import jsonschema
except ImportError:
    print("skipped: the Python package jsonschema is not installed")
    sys.exit(77)


def check(pattern):
    return lambda s: re.fullmatch(pattern, s) is not None


def is_date(s):
    datetime.date.fromisoformat(s)
    return check(r"\d{4}-\d\d-\d\d")(s)


def is_time(s):
    datetime.time.fromisoformat(s.replace("Z", "+00:00"))
    return check(r"\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")(s)


def is_email(s):
    local, at, host = s.partition("@")
    return at and check(r"[^\s@]+")(local) and is_hostname(host)


def is_hostname(s):
    return len(s) <= 253 and all(
        check(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")(part) for part in s.split("."))


# What each format's own specification says, apart from the library's optional checkers.
FORMATS = {
    "date": is_date,
    "time": is_time,
    "date-time": lambda s: is_date(s[:10]) and s[10] == "T" and is_time(s[11:]),
    "duration": check(r"P(?=.)(\d+W|(\d+Y)?(\d+M)?(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?)"),
    "uuid": lambda s: str(uuid.UUID(s)) == s.lower(),
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": lambda s: ipaddress.IPv4Address(s) is not None,
    "ipv6": lambda s: ipaddress.IPv6Address(s) is not None,
    "uri": check(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#]+(/[^\s?#]*)*(\?[^\s#]*)?(#\S*)?"),
}


def format_checker():
    checker = jsonschema.FormatChecker(formats=())
    for name, fn in FORMATS.items():
        checker.checks(name, raises=(ValueError, IndexError))(
            lambda value, fn=fn: not isinstance(value, str) or bool(fn(value)))
    return checker


def validator(schema):
    """Draft 2020-12, or the older draft where items is a list; nullable as OpenAPI has it."""
    if isinstance(schema, dict) and isinstance(schema.get("items"), list):
        return jsonschema.Draft7Validator(schema, format_checker=format_checker())
    if isinstance(schema, dict) and schema.get("nullable"):
        schema = {"anyOf": [{"type": "null"}, {k: v for k, v in schema.items() if k != "nullable"}]}
    return jsonschema.Draft202012Validator(schema, format_checker=format_checker())


def main():
    probe, model, path = sys.argv[1:4]
    seeds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
    with open(path, encoding="utf-8") as f:
        schemas = [json.loads(line) for line in f if line.strip()]
    cases = [(schema, seed) for schema in schemas for seed in range(seeds)]
    lines = "".join(json.dumps({"schema": s, "seed": seed}) + "\n" for s, seed in cases)
    done = subprocess.run([probe, "schema", model], input=lines, capture_output=True, text=True,
                          check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    failed = 0 if len(answers) == len(cases) else 1
    texts = {}
    for (schema, seed), answer in zip(cases, answers):
        problem = answer.get("error")
        if problem is None:
            try:
                value = json.loads(answer["text"])
                error = next(validator(schema).iter_errors(value), None)
                problem = error and error.message
            except ValueError as e:
                problem = f"no JSON: {e}"
            texts.setdefault(json.dumps(schema), set()).add(answer["text"])
        if problem:
            failed += 1
            print(f"{json.dumps(schema)} seed {seed}: {problem[:300]}\n  {answer.get('text')!r:.500}")
    varied = sum(len(t) > 1 for t in texts.values())
    print(f"{len(schemas)} schemas, {len(answers)} walks, {varied} with different answers, "
          f"{failed} failed")
    if varied < len(schemas) // 2:
        print("the walks are hardly random")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
