"""Plans against assets/schema/plan.schema.json, and the built-in policies in them against policy.schema.json.

    python tests/schema_check.py PLAN...

Exit 1 and one line a problem when a plan does not fit. Also checks that the schemas refuse: a plan with a version, a
digest or a choice broken must not pass.
"""

import copy
import json
import sys
from pathlib import Path

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

CHAIN = {"reads": "e4m3", "from": "net.0", "stores": ["bf16", "e4m3"], "store_scale": 0.0625, "saved_us": 3.5}
SCHEMAS = Path(__file__).parent.parent / "assets" / "schema"


def validators() -> dict[str, Draft202012Validator]:
    schemas = {path.name: json.loads(path.read_text()) for path in sorted(SCHEMAS.glob("*.schema.json"))}
    registry = Registry().with_resources((name, Resource.from_contents(schema)) for name, schema in schemas.items())
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    return {name: Draft202012Validator(schema, registry=registry) for name, schema in schemas.items()}


def broken(plan: dict) -> list[tuple[str, dict]]:
    """The plan, each time with one thing wrong that the schema must see."""
    changes = {
        "version 2": lambda p: p.update(version=2),
        "a digest that is none": lambda p: p.update(digest="sha256:12"),
        "no policy": lambda p: p.pop("policy"),
        "a negative threshold": lambda p: p["policy"].update(max_error=-1),
        "an unknown metric": lambda p: p["policy"].update(metric="bleu"),
        "an unknown key": lambda p: p.update(extra=1),
        "a choice without its kernel": lambda p: p["sites"][0]["fprop"].pop("kernel"),
        "a chain of an unknown form": lambda p: p["sites"][0].update(chain=CHAIN | {"reads": "int8"}),
        "a chain that stores nothing": lambda p: p["sites"][0].update(chain=CHAIN | {"stores": []}),
        "an unknown source": lambda p: p["sites"][0]["wgrad"].update(source="guess"),
    }
    if plan.get("approvals"):
        changes |= {
            "a stripped signature": lambda p: p["approvals"][0].update(signature=""),
            "an approval without its key": lambda p: p["approvals"][0].pop("key"),
            "an approval by an unknown role": lambda p: p["approvals"][0].update(role="king"),
            "a rule that nobody keeps": lambda p: p["policy"]["approval"].update(approvers=0),
            "a rule with an unknown key": lambda p: p["policy"]["approval"].update(extra=1),
            "version 0 of it": lambda p: p.update(release=0),
            "a draft that says nothing": lambda p: p.update(draft=True),
        }
    copies = [(name, copy.deepcopy(plan)) for name in changes]
    for (name, changed), change in zip(copies, changes.values()):
        change(changed)
    return copies


def main() -> int:
    known = validators()
    whole, policy = known["plan.schema.json"], known["policy.schema.json"]
    problems = []
    for name in sys.argv[1:]:
        plan = json.loads(Path(name).read_text())
        for validator, value in ((whole, plan), (policy, plan["policy"])):
            problems += [f"{name}: {error.json_path}: {error.message}" for error in validator.iter_errors(value)]
        chained = plan | {"sites": [site | {"chain": CHAIN} for site in plan["sites"]]}
        problems += [f"{name}: with chains: {error.message}" for error in whole.iter_errors(chained)]
        problems += [f"{name}: accepted with {what}" for what, changed in broken(plan) if whole.is_valid(changed)]
    print("\n".join(problems) or f"{len(sys.argv) - 1} plans fit their schema")
    return 1 if problems or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
