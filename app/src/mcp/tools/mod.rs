//! What an assistant can ask for: every tool once, with its words, the schema of its arguments and what it does. Each is
//! something that the views compute already; none computes a figure of its own.

mod changes;
mod compare;
mod findings;
mod overview;
mod plan;
mod review;
mod site;
mod sites;
mod what_if;

pub use findings::as_data as findings_as_data;

use loka_core::model::visible;
use serde_json::{Map, Value, json};

use super::{
    host::{Access, Host, NoResult},
    message::Request,
};
use crate::nearest::did_you_mean;

/// A tool's answer: in words, and the same as data.
pub struct ToolAnswer {
    lines: Vec<String>,
    data: Value,
}

impl ToolAnswer {
    fn new(lines: Vec<String>, data: Value) -> Self {
        Self { lines, data }
    }

    pub fn result(&self) -> Value {
        let lines: Vec<String> = self.lines.iter().map(|line| visible(line)).collect();
        json!({
            "content": [{"type": "text", "text": lines.join("\n")}], "structuredContent": self.data, "isError": false,
        })
    }
}

type Perform = fn(&mut Host, &Request, Map<String, Value>) -> Result<ToolAnswer, NoResult>;

pub struct Tool {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    schema: fn() -> Value,
    /// It changes the session, and needs to be allowed.
    changes: bool,
    perform: Perform,
}

const fn tool(
    name: &'static str,
    (title, about): (&'static str, &'static str),
    schema: fn() -> Value,
    changes: bool,
    perform: Perform,
) -> Tool {
    Tool { name, title, about, schema, changes, perform }
}

const OVERVIEW: (&str, &str) = (
    "Overview",
    "Begin here: what is open, how far it is probed, the policy, the plan in words with its totals and warnings, who else \
     looks on, and what may be changed.",
);
const FINDINGS: (&str, &str) = (
    "Findings",
    "What to know of the plan, worth most first: undecided kernels, near thresholds, slow overrides, flushed values, casts \
     that eat the gain. Each with the microseconds a step or the loss that it is worth, and what would help.",
);
const SITES: (&str, &str) = (
    "Sites, ranked",
    "Sites (linear layers) ranked by what they cost or by a metric, narrowed by the workbench's own filter. Each with its \
     time as planned and in BF16, what is saved, its loss cost, the verdict of each GEMM and the plan's kernels.",
);
const SITE: (&str, &str) = (
    "One site",
    "Everything about one site: shape, tail, and for each GEMM the chosen kernel with its reason, other kernels with error, \
     time and verdict, and what would change the verdict; comments and overrides there.",
);
const PLAN: (&str, &str) = (
    "The plan",
    "The plan's totals and its lines, one a GEMM, or its lines in groups with sums (by library, recipe, shape, cause or \
     module).",
);
const WHAT_IF: (&str, &str) = (
    "What if",
    "What another policy, threshold, runtime or kernel would give: totals now and then, and which GEMMs change. The session \
     is left as it is.",
);
const COMPARE: (&str, &str) = (
    "Compare plans",
    "What differs between two plans, GEMM by GEMM, with the cause of each change: the plan as it stands against a plan file, \
     the submitted version, the windows' baseline, or what the policy alone would choose.",
);
const REVIEW: (&str, &str) = (
    "Review",
    "What people decided and said: overrides with their reasons and authors, comments, marks, the submitted version and its \
     approvals.",
);
const SET_POLICY: (&str, &str) = (
    "Set the policy",
    "Takes a built-in policy, or changes bounds of the one in force. The plan is made anew at once.",
);
const OVERRIDE: (&str, &str) =
    ("Override a kernel", "Sets one kernel by hand at GEMMs of one or more sites, with a reason that reviewers read.");
const CLEAR: (&str, &str) = ("Clear an override", "Leaves GEMMs that were set by hand to the policy again.");
const SET_MOD: (&str, &str) = (
    "Set a mod",
    "Turns a change of the model on or off, everywhere or at some sites. It is a what-if that must be trained: rows that \
     are missing are probed, which takes a while.",
);
const COMMENT: (&str, &str) =
    ("Comment", "Writes a comment on a site or on the plan, for the people who review it. It cannot be undone.");
const DRAW: (&str, &str) = (
    "Draw more",
    "Probes one site again with more draws, so that uncertain verdicts may stand. It takes the engine a while.",
);
const UNDO: (&str, &str) = ("Undo", "Takes the last decision back: policy, mods, overrides.");
const REDO: (&str, &str) = ("Redo", "Decides again what was undone last.");

const ALL: [Tool; 16] = [
    tool("overview", OVERVIEW, overview::schema, false, overview::perform),
    tool("findings", FINDINGS, findings::schema, false, findings::perform),
    tool("sites", SITES, sites::schema, false, sites::perform),
    tool("site", SITE, site::schema, false, site::perform),
    tool("plan", PLAN, plan::schema, false, plan::perform),
    tool("what_if", WHAT_IF, what_if::schema, false, what_if::perform),
    tool("compare", COMPARE, compare::schema, false, compare::perform),
    tool("review", REVIEW, review::schema, false, review::perform),
    tool("set_policy", SET_POLICY, changes::policy_schema, true, changes::set_policy),
    tool("override", OVERRIDE, changes::override_schema, true, changes::set_override),
    tool("clear_override", CLEAR, changes::clear_schema, true, changes::clear_override),
    tool("set_mod", SET_MOD, changes::mod_schema, true, changes::set_mod),
    tool("comment", COMMENT, changes::comment_schema, true, changes::comment),
    tool("draw_more", DRAW, changes::draw_schema, true, changes::draw_more),
    tool("undo", UNDO, no_arguments, true, changes::undo),
    tool("redo", REDO, no_arguments, true, changes::redo),
];

/// Those that may be called, in an order that stays.
pub fn list(access: Access) -> Vec<Value> {
    let of = |tool: &Tool| {
        json!({
            "name": tool.name, "title": tool.title, "description": tool.about, "inputSchema": (tool.schema)(),
            "annotations": {
                "title": tool.title, "readOnlyHint": !tool.changes, "destructiveHint": false,
                "idempotentHint": !tool.changes, "openWorldHint": false,
            },
        })
    };
    ALL.iter().filter(|tool| !tool.changes || access == Access::Changes).map(of).collect()
}

pub fn of_name(name: &str) -> Option<&'static Tool> {
    ALL.iter().find(|tool| tool.name == name)
}

pub fn unknown(name: &str) -> String {
    let shown = loka_core::model::visible_within(name, 80);
    format!("no tool is called '{shown}'{}", did_you_mean(name, ALL.iter().map(|tool| tool.name)))
}

pub fn call(
    host: &mut Host,
    request: &Request,
    tool: &Tool,
    arguments: Map<String, Value>,
) -> Result<ToolAnswer, NoResult> {
    if tool.changes && host.access == Access::ReadOnly {
        let line = format!(
            "{} changes the session, and this server is read-only: nothing was changed. Whoever runs it allows changes by \
             adding --allow-changes to `loka mcp` in the assistant's configuration.",
            tool.name
        );
        return Err(line.into());
    }
    host.ready(request)?;
    (tool.perform)(host, request, arguments)
}

fn no_arguments() -> Value {
    json!({"type": "object", "additionalProperties": false})
}

/// A schema of these properties; `required` names those that have to be given.
fn object(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "additionalProperties": false});
    schema["properties"] = properties;
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// How many lines an answer has.
fn limit_schema(default: usize) -> Value {
    json!({
        "type": "integer", "minimum": 1, "maximum": MOST, "default": default,
        "description": "How many at most; the answer says how many there are",
    })
}

/// Lines of one answer: what is more is for nobody's context.
const MOST: usize = 500;

fn limit(asked: Option<usize>, default: usize) -> usize {
    asked.unwrap_or(default).clamp(1, MOST)
}

/// That there is more, where not all is told.
fn and_more(lines: &mut Vec<String>, shown: usize, all: usize) {
    if all > shown {
        lines.push(format!("... and {} more: ask with a filter or a larger limit", all - shown));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tools_have_names_words_and_schemas_that_close() {
        let all = list(Access::Changes);
        let names: BTreeSet<&str> = all.iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert_eq!(names.len(), ALL.len());
        for tool in &all {
            let (name, schema) = (&tool["name"], &tool["inputSchema"]);
            assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)), "{name}");
            let described = |property: &Value| property["description"].as_str().is_some_and(|text| !text.is_empty());
            let properties = schema["properties"].as_object().cloned().unwrap_or_default();
            assert!(properties.values().all(described), "{name}");
            for required in schema["required"].as_array().into_iter().flatten() {
                assert!(properties.contains_key(required.as_str().unwrap()), "{name}: {required}");
            }
        }
    }

    #[test]
    fn who_may_only_read_is_offered_nothing_else() {
        let reads = list(Access::ReadOnly);
        assert_eq!(reads.len(), ALL.iter().filter(|tool| !tool.changes).count());
        assert!(reads.iter().all(|tool| tool["annotations"]["readOnlyHint"] == true));
        let line = unknown("sits");
        assert!(line.contains("did you mean 'site"), "{line}");
    }
}
