//! Questions that people ask often, for a client's menu: takes a prompt's name and arguments, gives the message to begin
//! with.

use serde_json::{Map, Value, json};

use super::message::RpcError;

struct Prompt {
    name: &'static str,
    title: &'static str,
    about: &'static str,
    /// Name, about, whether it has to be given.
    arguments: &'static [(&'static str, &'static str, bool)],
}

const ALL: [Prompt; 3] = [
    Prompt {
        name: "what_costs_most",
        title: "What costs most, and why",
        about: "The most expensive sites in time and in loss, with reasons and what could be done",
        arguments: &[("count", "How many sites; three when left out", false)],
    },
    Prompt {
        name: "review_site",
        title: "Review one site",
        about: "Whether the plan's kernels at one site are right, and what would change them",
        arguments: &[("site", "The site's whole name", true)],
    },
    Prompt {
        name: "before_we_sign",
        title: "Before we sign this plan",
        about: "What a reviewer should know before the plan is approved",
        arguments: &[],
    },
];

pub fn list() -> Vec<Value> {
    let argument = |(name, about, required): &(&str, &str, bool)| json!({"name": name, "description": about, "required": required});
    let of = |prompt: &Prompt| {
        let arguments: Vec<Value> = prompt.arguments.iter().map(argument).collect();
        json!({"name": prompt.name, "title": prompt.title, "description": prompt.about, "arguments": arguments})
    };
    ALL.iter().map(of).collect()
}

pub fn get(params: &Map<String, Value>) -> Result<Value, RpcError> {
    let name = params.get("name").and_then(Value::as_str).unwrap_or_default();
    let prompt = ALL.iter().find(|prompt| prompt.name == name);
    let prompt = prompt.ok_or_else(|| RpcError::params("no such prompt: prompts/list names them"))?;
    let given = params.get("arguments").and_then(Value::as_object);
    let argument = |name: &str| given.and_then(|given| given.get(name)).and_then(Value::as_str);
    for (name, ..) in prompt.arguments.iter().filter(|(_, _, required)| *required) {
        if argument(name).is_none() {
            return Err(RpcError::params(format!("the argument {name} is missing")));
        }
    }
    let text = match prompt.name {
        "what_costs_most" => {
            let count = argument("count").unwrap_or("three");
            format!(
                "Which {count} sites of this model cost most, in microseconds a step and in loss, and why? Use the sites \
                 tool sorted by time and by loss_cost, then the site tool for the reasons. Give each figure with its \
                 interval and origin, and say what would make a difference."
            )
        }
        "review_site" => {
            let site = argument("site").unwrap_or_default();
            format!(
                "Review the site {site}: which kernel the plan has for each of its GEMMs, why, how certain that is, and \
                 what would change it."
            )
        }
        _ => "What should we know before we sign this plan? Look at the overview, the findings, the overrides and the \
              comments; name what is uncertain, what was set by hand and why, and which speeds are modelled rather than \
              measured."
            .to_owned(),
    };
    Ok(json!({
        "description": prompt.about,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_can_be_had_and_says_what_it_lacks() {
        let of = |params: Value| get(params.as_object().unwrap());
        for prompt in list() {
            let got = of(json!({"name": prompt["name"], "arguments": {"site": "net.top.0"}})).unwrap();
            assert!(got["messages"][0]["content"]["text"].as_str().is_some_and(|text| !text.is_empty()));
        }
        assert!(of(json!({"name": "review_site"})).unwrap_err().message.contains("site is missing"));
        assert!(of(json!({"name": "x"})).is_err() && of(json!({})).is_err());
    }
}
