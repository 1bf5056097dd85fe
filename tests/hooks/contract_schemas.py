"""The contract's JSON schemas, as the SDK's wheel carries them."""

import functools
import json
from pathlib import Path

import pytest


@functools.cache
def validator(name):
    """A validator for the schema `name`, e.g. `interception-record`; skips without the SDK or jsonschema."""
    sdk = pytest.importorskip("agent_hooks", reason="agent-hooks-sdk is a development dependency")
    jsonschema = pytest.importorskip("jsonschema", reason="a development dependency")
    referencing = pytest.importorskip("referencing", reason="comes with jsonschema")
    root = Path(sdk.__file__).parent / "schema"
    schemas = {
        path.relative_to(root).as_posix().removesuffix(".schema.json"): json.loads(path.read_text())
        for path in root.rglob("*.schema.json")
    }
    resources = [(schema["$id"], referencing.Resource.from_contents(schema)) for schema in schemas.values()]
    registry = referencing.Registry().with_resources(resources)
    return jsonschema.Draft202012Validator(schemas[name], registry=registry)
