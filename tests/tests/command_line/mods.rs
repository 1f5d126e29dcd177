//! Mods are felt downstream: with block_norm, the rows of every site behind a normalised block change,
//! all others stay as they were, and a plan with the mods is made from the modified rows.

use std::collections::{BTreeMap, BTreeSet};

use loka_tests::{run_in, sample};
use serde_json::Value;
use tempfile::TempDir;

const SITES: [&str; 5] =
    ["net.layers.0.fmb.mlp.0", "net.layers.0.fmb.mlp.3", "net.layers.0.fmb.mlp.6", "net.top.0", "net.top.2"];

type ModRows = BTreeMap<(String, String, String), Value>;

/// Rows as the model is, and with block_norm.
fn probed(folder: &TempDir) -> (ModRows, ModRows) {
    let trace = sample();
    let mut args =
        vec!["probe", trace.to_str().unwrap(), "--out", "r.results.parquet", "--mods", "block_norm", "--json"];
    args.extend(["--min-draws", "4", "--max-draws", "4"]);
    args.extend(SITES.iter().flat_map(|site| ["--sites", site]));
    let (mut base, mut modified) = (ModRows::new(), ModRows::new());
    for mut row in run_in(folder.path(), args).done().objects() {
        let Some(mods) = row.as_object_mut().unwrap().remove("mods") else { continue };
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        let key = (text("site"), text("gemm"), text("kernel"));
        let rows = if mods.as_array().unwrap().is_empty() { &mut base } else { &mut modified };
        assert!(rows.insert(key, row).is_none());
    }
    assert_eq!((base.len(), modified.len()), (SITES.len() * 3 * 26, SITES.len() * 3 * 26));
    (base, modified)
}

#[test]
fn block_norm_is_felt_downstream_and_nowhere_else() {
    let folder = TempDir::new().unwrap();
    let (base, modified) = probed(&folder);
    let through = |rows: &ModRows, site: &str| -> BTreeSet<String> {
        rows.values().filter(|row| row["site"] == site).map(|row| row["sampler"].as_str().unwrap().to_owned()).collect()
    };
    // Sites 0 and 3 of the MLP end in a layer norm, and feed 3 and 6; net.top.0 ends in a ReLU.
    let felt =
        [("net.layers.0.fmb.mlp.3", "net.layers.0.fmb.mlp.0"), ("net.layers.0.fmb.mlp.6", "net.layers.0.fmb.mlp.3")];
    for (site, feeder) in felt {
        assert_eq!(through(&base, site), BTreeSet::from(["copula".to_owned()]));
        assert_eq!(through(&modified, site), BTreeSet::from([format!("through {feeder}")]));
    }
    for (key @ (site, gemm, kernel), row) in &base {
        let with = &modified[key];
        let downstream = felt.iter().any(|(felt, _)| felt == site);
        let reads_input = gemm != "dgrad";
        match (row["error"].is_object(), downstream && reads_input) {
            (true, true) => assert_ne!(with["error"], row["error"], "{site} {gemm} {kernel}"),
            // dgrad reads output gradients, which stay as recorded.
            (_, false) if downstream || site == "net.top.0" || site == "net.top.2" => {
                assert_eq!(with["error"], row["error"], "{site} {gemm} {kernel}");
            }
            // The modified site itself: the same GEMM, another tail after it.
            (true, false) => {
                assert_eq!(with["error"]["mere"], row["error"]["mere"], "{site} {gemm} {kernel}");
                let block = |row: &Value| row["error"]["block_rel_l2"]["value"].as_f64();
                assert_eq!(block(with) == block(row), gemm != "fprop", "{site} {gemm} {kernel}: {row} {with}");
            }
            (false, _) => assert!(with["error"].is_null(), "{site} {gemm} {kernel}"),
        }
    }
    // Normalised inputs have no outliers: a tensorwise scale is finer.
    let rel_l2 = |rows: &ModRows| {
        let key = ("net.layers.0.fmb.mlp.3".to_owned(), "fprop".to_owned(), "cublaslt/fp8-tensorwise".to_owned());
        rows[&key]["error"]["rel_l2"]["value"].as_f64().unwrap()
    };
    assert!(
        rel_l2(&modified).is_finite() && rel_l2(&modified) < 1.1 * rel_l2(&base),
        "{} {}",
        rel_l2(&modified),
        rel_l2(&base)
    );
}

#[test]
fn a_plan_with_mods_is_made_from_the_modified_rows() {
    let folder = TempDir::new().unwrap();
    let (base, modified) = probed(&folder);
    let wanted = "net.layers.0.fmb.mlp.3:fprop=cublaslt/fp8-rowwise";
    let plan = |name: &str, mods: &[&str]| -> Value {
        let args = ["plan", "r.results.parquet", "--out", name, "--policy", "paper", "--override", wanted];
        run_in(folder.path(), [&args, mods].concat()).done();
        serde_json::from_slice(&std::fs::read(folder.path().join(name)).unwrap()).unwrap()
    };
    let (plain, with) = (plan("a.plan.json", &[]), plan("b.plan.json", &["--mods", "block_norm"]));
    assert_eq!(plain["mods"], serde_json::json!({}));
    assert_eq!(with["mods"].as_object().unwrap().len(), 14);
    assert_eq!(with["mods"]["net.layers.0.fmb.mlp.3"], serde_json::json!(["block_norm"]));
    let error = |plan: &Value| {
        let sites = plan["sites"].as_array().unwrap();
        let site = sites.iter().find(|site| site["site"] == "net.layers.0.fmb.mlp.3").unwrap();
        assert_eq!(site["fprop"]["source"], "override");
        site["fprop"]["error"]["mere"].clone()
    };
    let key = ("net.layers.0.fmb.mlp.3".to_owned(), "fprop".to_owned(), "cublaslt/fp8-rowwise".to_owned());
    assert_eq!(error(&plain), base[&key]["error"]["mere"]["value"]);
    assert_eq!(error(&with), modified[&key]["error"]["mere"]["value"]);
    let diff = run_in(folder.path(), ["diff", "a.plan.json", "b.plan.json"]).done();
    assert!(diff.stdout.contains("net.layers.0.fmb.mlp.3: mods '' became 'block_norm'"), "{diff:?}");
}
