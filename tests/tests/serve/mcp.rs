//! `loka mcp` with a client on the other end of its pipes: the protocol in both its forms, every tool on the bundled ranker,
//! hostile lines, and a session of a server that an assistant joins.

use std::path::Path;

use loka_core::{
    model::{Gemm, KernelId, SiteId},
    session::Command,
};
use loka_tests::{
    assistant::Assistant,
    root, run_in,
    serving::{PATIENCE, Server, Window, add_user},
    tiny,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const TRACE: &str = "dcnv2-ranker.trace.safetensors";
const RESULTS: &str = "dcnv2-ranker.results.parquet";
const COUNTERS: &str = "tokens.bottom.0";
const TINY: &str = "tiny.trace.safetensors";

const READING: [&str; 8] = ["overview", "findings", "sites", "site", "plan", "what_if", "compare", "review"];
const CHANGING: [&str; 8] =
    ["set_policy", "override", "clear_override", "set_mod", "comment", "draw_more", "undo", "redo"];

/// The bundled ranker in a folder of the test's own: a journal may be made beside it.
fn ranker() -> TempDir {
    let folder = TempDir::new().unwrap();
    for name in [TRACE, RESULTS] {
        std::fs::copy(root("sample-traces").join(name), folder.path().join(name)).unwrap();
    }
    folder
}

fn opened(folder: &TempDir, more: &[&str]) -> Assistant {
    Assistant::greeted(folder.path(), [&[TRACE, RESULTS], more].concat())
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect()
}

fn files(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut all: Vec<String> = all.collect();
    all.sort();
    all
}

#[test]
fn an_assistant_that_may_only_read_answers_what_costs_most_and_changes_nothing() {
    let folder = ranker();
    let mut assistant = opened(&folder, &[]);
    let tools = assistant.ask("tools/list", json!({}));
    assert_eq!(names(&tools["result"]["tools"]), READING);
    let (text, data) = assistant.call("overview", json!({})).unwrap();
    assert!(text.contains("FP8 runs at ") && text.contains("Read-only"), "{text}");
    assert_eq!((&data["rows"]["complete"], &data["may_change"]), (&json!(true), &json!(false)), "{data}");

    let (text, data) = assistant.call("sites", json!({"limit": 3})).unwrap();
    let sites = data["sites"].as_array().unwrap();
    assert_eq!(sites.len(), 3);
    let planned: Vec<f64> = sites.iter().map(|site| site["planned"]["value"].as_f64().unwrap()).collect();
    assert!(planned.is_sorted_by(|a, b| a >= b), "{planned:?}");
    assert!(sites.iter().all(|site| site["planned"]["unit"] == "us a step" && site["planned"]["origin"].is_string()));
    assert!(text.contains("as planned") && text.contains("loss cost"), "{text}");
    let dearest = sites[0]["site"].as_str().unwrap().to_owned();

    let (text, data) = assistant.call("site", json!({"site": dearest})).unwrap();
    assert!(text.contains("chosen: ") && text.contains("[chosen]"), "{text}");
    let kernels = data["gemms"][0]["kernels"].as_array().unwrap();
    let errors: Vec<&Value> = kernels.iter().map(|kernel| &kernel["error"]).filter(|error| error.is_object()).collect();
    assert!(!errors.is_empty() && errors.iter().all(|error| error["origin"].is_string() && error["unit"].is_string()));
    let far = assistant.call("site", json!({"site": dearest, "all_kernels": true})).unwrap().1;
    assert!(far["gemms"][0]["kernels"].as_array().unwrap().len() > kernels.len());

    let totals = assistant.call("plan", json!({"group_by": "cause"})).unwrap().1;
    assert!(totals["totals"]["gemms_in_fp8"].as_u64().unwrap() > 0, "{totals}");
    let lines = assistant.call("plan", json!({"fp8_only": true, "limit": 500})).unwrap().1;
    assert_eq!(lines["count"], totals["totals"]["gemms_in_fp8"]);
    assert!(!assistant.call("findings", json!({})).unwrap().0.is_empty());

    let (text, then) = assistant.call("what_if", json!({"min_speedup": 100.0})).unwrap();
    assert_eq!((&then["then"]["gemms_in_fp8"], &then["count"]), (&json!(0), &lines["count"]), "{text}");
    assert_eq!(assistant.call("overview", json!({})).unwrap().1["totals"], totals["totals"], "it was only asked");
    let same = assistant.call("compare", json!({"before": "policy"})).unwrap();
    assert!(same.0.contains("The plans decide the same."), "{}", same.0);

    for tool in CHANGING {
        let line = assistant.call(tool, json!({})).unwrap_err();
        assert!(line.contains("read-only: nothing was changed") && line.contains("--allow-changes"), "{tool}: {line}");
    }
    assert_eq!(assistant.end(), Some(0));
    assert_eq!(files(folder.path()), [RESULTS, TRACE], "no journal is made");
}

/// Counters before a norm: what they cost is far more than a tenth of the loss, by every kernel.
#[test]
fn a_loss_cost_that_means_nothing_is_marked() {
    let folder = TempDir::new().unwrap();
    let trace = root("sample-traces/dhen-counters.trace.safetensors");
    let kernels = ["--kernels", "cublaslt/bf16", "--kernels", "cublaslt/fp8-rowwise*"];
    let few = ["--sites", COUNTERS, "--rows", "512", "--min-draws", "4", "--max-draws", "4", "--engine", "cpu"];
    let out = ["probe", trace.to_str().unwrap(), "--json", "--out", "r.results.parquet"];
    let rows = run_in(folder.path(), [&out[..], &kernels, &few].concat()).done().objects();
    let of =
        |row: &Value| (row["gemm"].as_str() == Some("fprop")).then(|| row["loss_cost_in_range"].as_bool().unwrap());
    let in_range: Vec<bool> = rows.iter().filter_map(of).collect();
    assert!(in_range.contains(&false), "{rows:?}");
    let backward = rows.iter().filter(|row| row["gemm"] == "wgrad");
    assert!(backward.clone().count() > 0 && backward.into_iter().all(|row| row["loss_cost_in_range"] == true));

    let mut assistant = Assistant::greeted(folder.path(), ["r.results.parquet"]);
    let asked = json!({"site": COUNTERS, "gemm": "fprop", "metric": "loss_cost", "all_kernels": true});
    let (text, data) = assistant.call("site", asked).unwrap();
    let kernels = data["gemms"][0]["kernels"].as_array().unwrap();
    let marked = kernels.iter().filter(|kernel| kernel["error"]["in_range"] == false).count();
    assert!(marked > 0, "{data}");
    assert_eq!(text.matches("outside its range: it means nothing").count(), marked, "{text}");
    let of_bf16 = kernels.iter().find(|kernel| kernel["kernel"] == "cublaslt/bf16").unwrap();
    assert_eq!((&of_bf16["error"]["value"], &of_bf16["error"]["in_range"]), (&json!(0.0), &json!(true)));
    // Nor is anybody told that draws decide on it.
    for kernel in
        kernels.iter().filter(|kernel| kernel["error"]["in_range"] == false && kernel["low_precision"] == true)
    {
        let words = kernel["what_would_change"][0].as_str().unwrap();
        assert!(words.starts_with("Uncertain, and more draws do not decide"), "{words}");
    }
    assert!(!text.contains("draws are expected to"), "{text}");
    assistant.end();
}

#[test]
fn words_that_nobody_knows_are_answered_with_those_that_there_are() {
    let folder = ranker();
    let mut assistant = opened(&folder, &["--allow-changes"]);
    for (tool, arguments, line) in [
        ("sites", json!({"sort": "price"}), "no order is called 'price': there are time, saved, loss_cost"),
        ("sites", json!({"filter": "gemm:up"}), "no gemm: is called “up”"),
        ("sites", json!({"fliter": "a"}), "arguments: unknown field `fliter`"),
        ("sites", json!({"limit": "three"}), "arguments: invalid type"),
        ("site", json!({}), "arguments: missing field `site`"),
        ("site", json!({"site": "nowhere at all"}), "no site is called 'nowhere at all'"),
        ("plan", json!({"group_by": "colour"}), "no grouping is called 'colour'"),
        ("what_if", json!({}), "Say what should be otherwise"),
        ("what_if", json!({"max_eror": 1}), "arguments: unknown field `max_eror`"),
        ("what_if", json!({"max_error": -1}), "max_error is -1, it must be a number of at least 0"),
        ("what_if", json!({"policy": "best"}), "unknown policy 'best'"),
        ("compare", json!({"before": "no.plan.json"}), "no such file or folder: no.plan.json"),
        ("compare", json!({"before": RESULTS}), "not a plan"),
        ("override", json!({"sites": [], "kernel": "cublaslt/bf16", "reason": "r"}), "sites is empty"),
        ("undo", json!({}), "nothing to undo"),
        ("set_policy", json!({}), "Say what to change"),
    ] {
        let told = assistant.call(tool, arguments.clone()).unwrap_err();
        assert!(told.to_lowercase().contains(&line.to_lowercase()), "{tool} {arguments}: {told}");
    }
    let unknown = assistant.ask("tools/call", json!({"name": "sits"}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert!(unknown["error"]["message"].as_str().unwrap().contains("did you mean 'site"), "{unknown}");
}

#[test]
fn what_is_allowed_is_done_kept_in_the_journal_and_undone() {
    let folder = ranker();
    let mut assistant = opened(&folder, &["--allow-changes", "--name", "Ada's assistant"]);
    let tools = assistant.ask("tools/list", json!({}));
    assert_eq!(names(&tools["result"]["tools"]), [READING, CHANGING].concat());
    let low = assistant.call("plan", json!({"fp8_only": true, "limit": 1})).unwrap().1;
    let (site, gemm) = (low["lines"][0]["site"].clone(), low["lines"][0]["gemm"].clone());
    let high = json!({"sites": [site], "gemm": gemm, "kernel": "cublaslt/bf16", "reason": "it diverged"});
    let (text, _) = assistant.call("override", high).unwrap();
    assert!(text.starts_with("Done, as Ada's assistant: cublaslt/bf16 is set by hand at 1 GEMM."), "{text}");
    assistant.call("comment", json!({"site": site, "text": "see the log of Tuesday"})).unwrap();
    let (text, _) = assistant.call("review", json!({})).unwrap();
    assert!(text.contains("(it diverged), by Ada's assistant at") && text.contains("see the log of Tuesday"), "{text}");
    let differs = assistant.call("compare", json!({"before": "policy"})).unwrap().1;
    let by_hand = differs["changes"].as_array().unwrap().iter().filter(|change| change["cause"] == "override");
    assert_eq!(by_hand.count(), 1, "the rest of it is what follows: {differs}");
    assistant.call("undo", json!({})).unwrap();
    assert_eq!(assistant.call("overview", json!({})).unwrap().1["overrides"], 0);
    assistant.call("redo", json!({})).unwrap();
    assistant.call("clear_override", json!({"sites": [site]})).unwrap();
    assistant.call("set_policy", json!({"policy": "rel-l2", "max_error": 0.04})).unwrap();
    assert_eq!(assistant.end(), Some(0));

    let log = loka_tests::run_in(folder.path(), ["log", TRACE]).done().stdout;
    for line in ["Ada's assistant", "(it diverged)", "undid the last decision", "set policy rel-l2", "commented on"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    // Who only reads sees what was decided, and leaves the journal to others.
    let mut reader = opened(&folder, &[]);
    assert_eq!(reader.call("overview", json!({})).unwrap().1["policy"]["max_error"], 0.04);
    let mut writer = opened(&folder, &["--allow-changes"]);
    assert_eq!(writer.call("undo", json!({})).unwrap().1["not_kept"], Value::Null);
}

#[test]
fn every_line_has_one_answer_or_none_and_the_next_is_answered_all_the_same() {
    let folder = TempDir::new().unwrap();
    tiny::put(&folder.path().join(TINY), 1);
    let mut assistant = Assistant::greeted(folder.path(), [TINY]);
    for (line, code) in [
        ("{", -32700),
        ("\u{0}", -32700),
        ("[]", -32600),
        ("[1,2]", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"site","arguments":[]}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"x"}}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, -32600),
    ] {
        assistant.say(line);
        let answer = assistant.hear();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    assistant.say_bytes(b"\xff\xfe\n");
    assert_eq!(assistant.hear()["error"]["code"], -32700);
    assistant.say(&"[".repeat(500_000));
    assert_eq!(assistant.hear()["error"]["code"], -32700);
    assistant.say(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "x".repeat(5 << 20)));
    assert_eq!(assistant.hear()["error"]["code"], -32600);
    // Nobody waits for an answer to these.
    for line in [
        "",
        "   ",
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"undo"}}"#,
        r#"{"jsonrpc":"2.0","method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
    ] {
        assistant.say(line);
    }
    assert_eq!(assistant.ask("ping", json!({}))["result"], json!({}));
    // As many as a pipe takes: each is answered, in order.
    for id in 0..500 {
        assistant.say(&json!({"jsonrpc": "2.0", "id": format!("p{id}"), "method": "ping"}).to_string());
    }
    for id in 0..500 {
        assert_eq!(assistant.hear()["id"], format!("p{id}"));
    }
    assert_eq!(assistant.end(), Some(0));
}

#[test]
fn both_ways_to_agree_on_a_version_are_served() {
    let folder = TempDir::new().unwrap();
    tiny::put(&folder.path().join(TINY), 1);
    let mut assistant = Assistant::start(folder.path(), [TINY]);
    let early = assistant.ask("tools/list", json!({}));
    assert_eq!(early["error"]["code"], -32602, "nothing was agreed on: {early}");
    let meta = |version: &str| {
        json!({"_meta": {
            "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {},
        }})
    };
    let discovered = assistant.ask("server/discover", meta("2026-07-28"));
    let found = &discovered["result"];
    assert_eq!((&found["resultType"], &found["cacheScope"]), (&json!("complete"), &json!("private")), "{found}");
    assert_eq!(found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "loka");
    assert_eq!(found["supportedVersions"][0], "2026-07-28");
    let other = assistant.ask("tools/list", meta("1900-01-01"));
    assert_eq!((&other["error"]["code"], &other["error"]["data"]["requested"]), (&json!(-32022), &json!("1900-01-01")));
    assert!(assistant.ask("tools/list", meta("2026-07-28"))["result"]["ttlMs"].is_u64());

    for (asked, agreed) in [("2024-11-05", "2024-11-05"), ("2025-03-26", "2025-03-26"), ("3000-01-01", "2025-11-25")] {
        let mut assistant = Assistant::start(folder.path(), [TINY]);
        let answer = assistant.ask("initialize", json!({"protocolVersion": asked, "capabilities": {}}));
        assert_eq!(answer["result"]["protocolVersion"], agreed);
        assistant.say(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#);
        let answer = assistant.hear();
        match answer.as_array() {
            Some(all) => assert_eq!((agreed, all.len()), ("2025-03-26", 2)),
            None => assert_eq!(answer["error"]["code"], -32600, "{agreed}"),
        }
    }
}

#[test]
fn resources_and_prompts_are_there_to_be_read() {
    let folder = ranker();
    let mut assistant = opened(&folder, &[]);
    let list = assistant.ask("resources/list", json!({}));
    for resource in list["result"]["resources"].as_array().unwrap() {
        let uri = resource["uri"].clone();
        let read = assistant.ask("resources/read", json!({"uri": uri}));
        let contents = &read["result"]["contents"][0];
        let text = contents["text"].as_str().unwrap_or_else(|| panic!("{read}"));
        assert!(!text.is_empty() && contents["uri"] == uri && contents["mimeType"] == resource["mimeType"]);
        match resource["mimeType"].as_str().unwrap() {
            "application/json" => drop(serde_json::from_str::<Value>(text).unwrap()),
            "application/jsonl" => text.lines().for_each(|line| drop(serde_json::from_str::<Value>(line).unwrap())),
            _ => {}
        }
    }
    let plan = assistant.ask("resources/read", json!({"uri": "loka://plan"}));
    let plan: Value = serde_json::from_str(plan["result"]["contents"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(plan["format"], "loka-plan");
    let site = plan["sites"][0]["site"].as_str().unwrap();
    let rows = assistant.ask("resources/read", json!({"uri": format!("loka://results/{site}")}));
    let rows = rows["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
    assert!(rows.lines().count() > 3 && rows.lines().all(|row| row.contains(site)));
    assert_eq!(
        assistant.ask("resources/templates/list", json!({}))["result"]["resourceTemplates"].as_array().unwrap().len(),
        1
    );
    let prompts = assistant.ask("prompts/list", json!({}));
    assert!(names(&prompts["result"]["prompts"]).contains(&"what_costs_most"));
    let asked = assistant.ask("prompts/get", json!({"name": "review_site", "arguments": {"site": site}}));
    assert!(asked["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains(site));
}

fn served(args: &[&str]) -> (TempDir, Server) {
    let folder = TempDir::new().unwrap();
    tiny::put(&folder.path().join(TINY), 3);
    let server = Server::start(&folder.path().join(TINY), args);
    (folder, server)
}

fn join(server: &Server, more: &[&str]) -> Assistant {
    let address = format!("http://{}", server.address);
    Assistant::greeted(&root(""), [&["--connect", &address], more].concat())
}

#[test]
fn an_assistant_acts_in_the_session_that_people_have_open() {
    let (_folder, server) = served(&[]);
    let mut anna = Window::join(&server, 1, None);
    anna.until_probed();
    let mut reader = join(&server, &["--name", "Onlooker"]);
    let (text, data) = reader.call("overview", json!({"wait_seconds": 60})).unwrap();
    assert!(text.contains("This is a served session (with Window 1)"), "{text}");
    assert_eq!((&data["session"], &data["rows"]["complete"]), (&json!("served"), &json!(true)), "{data}");
    let change = json!({"policy": "rel-l2", "max_error": 0.07});
    let line = reader.call("set_policy", change.clone()).unwrap_err();
    assert!(line.contains("read-only: nothing was changed"), "{line}");
    anna.settle();
    assert_ne!(anna.session.document.policy.name, "rel-l2", "it was refused");

    let mut assistant = join(&server, &["--allow-changes", "--name", "Helper"]);
    let (text, _) = assistant.call("set_policy", change).unwrap();
    assert!(text.starts_with("Done, as Helper"), "{text}");
    anna.until("the policy is there", |window| window.session.document.policy.max_error == 0.07);
    assert!(anna.session.reviewing.authors.contains("Helper"), "{:?}", anna.session.reviewing.authors);
    // What another does is seen, and what was not seen is not overridden.
    let (site, kernel) = (SiteId::new("layers.1"), KernelId::new("cublaslt/tf32"));
    let reason = "it must stay".to_owned();
    anna.submit(Command::SetOverride { site, gemm: Gemm::Fprop, kernel, reason });
    anna.until("it is answered", |window| window.sync.num_waiting() == 0);
    // It comes to each of the others when it comes.
    let hers = |who: &mut Assistant| {
        let (text, data) = who.call("review", json!({})).unwrap();
        let there = text.contains("layers.1 fprop: cublaslt/tf32 (it must stay), by Window 1");
        there && data["overrides"][0]["by"] == "Window 1"
    };
    let start = std::time::Instant::now();
    for who in [&mut reader, &mut assistant] {
        while !hers(who) {
            assert!(start.elapsed() < PATIENCE, "an assistant never sees it");
        }
    }
    assistant
        .call("override", json!({"sites": ["layers.1"], "kernel": "cublaslt/bf16", "reason": "all of it"}))
        .unwrap();
    let places =
        |window: &Window| window.session.document.overrides.values().filter(|of| of.reason == "all of it").count();
    anna.until("all three are there", |window| places(window) == 3);
    assistant.call("undo", json!({})).unwrap();
    anna.until("they are gone", |window| places(window) == 0);
    assert_eq!(anna.session.document.overrides.len(), 1, "hers stays");
    reader.call("site", json!({"site": "layers.2"})).unwrap();
    let looks = |window: &Window| {
        window
            .sync
            .people
            .iter()
            .any(|person| person.name == "Onlooker" && person.at.site == Some(SiteId::new("layers.2")))
    };
    anna.until("where the assistant looks is seen", looks);
    assert_eq!((reader.end(), assistant.end()), (Some(0), Some(0)));
}

#[test]
fn a_list_of_people_says_what_an_assistant_may_do() {
    let folder = TempDir::new().unwrap();
    let (users, traces) = (folder.path().join("users.json"), folder.path().join("traces"));
    std::fs::create_dir(&traces).unwrap();
    tiny::put(&traces.join(TINY), 2);
    tiny::put(&traces.join("other.trace.safetensors"), 1);
    let link = add_user(&users, "Robot", "reviewer");
    let token = folder.path().join("token");
    std::fs::write(&token, link.split_once('=').unwrap().1).unwrap();
    let server = Server::start(&traces, ["--users", users.to_str().unwrap()]);
    let stranger = join(&server, &["--trace", TINY]).call("overview", json!({})).unwrap_err();
    assert!(stranger.contains("asks who you are") && stranger.contains("--token-file"), "{stranger}");

    let token = token.to_str().unwrap();
    let none = join(&server, &["--token-file", token]).call("overview", json!({})).unwrap_err();
    assert!(none.contains("--trace NAME") && none.contains(TINY), "{none}");
    let args = ["--token-file", token, "--trace", TINY, "--allow-changes", "--name", "Somebody else"];
    let mut robot = join(&server, &args);
    let (text, data) = robot.call("overview", json!({"wait_seconds": 60})).unwrap();
    assert!(text.contains("you are Robot, a reviewer"), "{text}");
    assert_eq!(data["role"], "reviewer");
    let line = robot.call("set_policy", json!({"policy": "paper"})).unwrap_err();
    assert!(line.contains("Robot is a reviewer here, and that takes an owner: nothing was changed"), "{line}");
    let (text, _) = robot.call("comment", json!({"text": "looks fine"})).unwrap();
    assert!(text.starts_with("Done, as Robot"), "{text}");
    assert!(robot.call("review", json!({})).unwrap().0.contains("by Robot at"));
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_so() {
    let gone = {
        let (_folder, server) = served(&[]);
        format!("http://{}", server.address)
    };
    let mut assistant = Assistant::greeted(&root(""), ["--connect", &gone]);
    let line = assistant.call("overview", json!({})).unwrap_err();
    assert!(line.contains("the served session cannot be reached") && line.contains(&gone), "{line}");
    for (args, line) in [
        (vec!["--connect", "ftp://x"], "an address begins with http:// or https://"),
        (vec!["no.trace.safetensors"], "no such file or folder: no.trace.safetensors"),
        (vec!["--connect", "http://x", "--name", ""], "'' is no name"),
    ] {
        let run = loka_tests::run_in(&root(""), [&["mcp"], &args[..]].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{run:?}");
        assert!(run.stderr.contains(line), "{run:?}");
    }
}
