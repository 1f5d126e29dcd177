//! `loka key`: a person's secret key, and a team's list of public ones.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use loka_core::review::{KeyRing, Keyed, PublicKey, Role};
use serde_json::json;

use super::output::{self, Outcome, TextTable};
use crate::{files, keys};

#[derive(clap::Args, Debug)]
pub struct KeyArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Make a secret key, in a file that only you can read.
    New {
        /// Who signs with it; the user of this machine when left out.
        #[arg(long)]
        name: Option<String>,
        /// The file to make; one in the folder of your settings when left out. Never overwritten.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Whose a secret key is, and its public half.
    Show {
        /// Your own when left out.
        file: Option<PathBuf>,
    },
    /// Who is in a team's list.
    List { keys: PathBuf },
    /// Put somebody into a team's list, which is made where there is none.
    Add(Person),
}

#[derive(clap::Args, Debug)]
struct Person {
    keys: PathBuf,
    #[arg(long)]
    name: String,
    /// The public half, ed25519:…
    #[arg(long)]
    key: PublicKey,
    /// viewer, reviewer, approver or owner.
    #[arg(long, default_value = "approver")]
    role: Role,
}

pub fn run(args: &KeyArgs, json: bool) -> anyhow::Result<Outcome> {
    match &args.what {
        What::New { name, out } => new(name.as_deref(), out.as_deref(), json),
        What::Show { file } => show(file.as_deref(), json),
        What::List { keys } => list(keys, json),
        What::Add(person) => add(person, json),
    }?;
    Ok(Outcome::Done)
}

fn new(name: Option<&str>, out: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let path = keys::path_or_default(out, "--out FILE")?;
    let name = name.map(str::to_owned).or_else(keys::user_name).context("who signs with it? --name NAME")?;
    let key = keys::make(&name)?;
    if let (None, Some(folder)) = (out, path.parent()) {
        std::fs::create_dir_all(folder)
            .map_err(|error| anyhow::anyhow!("{}: {}", files::reason(&error), folder.display()))?;
    }
    files::write_secret(&path, key.to_json().as_bytes())?;
    let public = Keyed { name: key.name.clone(), key: key.public(), role: Role::Approver };
    if json {
        return output::json(&json!({"written": path, "public": public}));
    }
    output::line(&format!("secret key written, for your eyes alone: {}", path.display()));
    output::line("its public half, for the team's list (`loka key add KEYS --name … --key … --role …`):");
    output::json(&public)
}

fn show(file: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let path = keys::path_or_default(file, "FILE")?;
    let key = keys::read(&path)?;
    if json {
        return output::json(&json!({"file": path, "name": key.name, "key": key.public()}));
    }
    output::line(&format!("{}  {}", key.name, key.public()));
    Ok(())
}

fn list(path: &Path, json: bool) -> anyhow::Result<()> {
    let ring = keys::read_ring(path)?;
    if json {
        return ring.people().iter().try_for_each(output::json);
    }
    let mut table = TextTable::new(&["name", "role", "key"]);
    for Keyed { name, key, role } in ring.people() {
        table.row([name.clone(), role.to_string(), key.to_string()]);
    }
    table.print();
    Ok(())
}

fn add(person: &Person, json: bool) -> anyhow::Result<()> {
    let path = &person.keys;
    let _turn = files::lock(path)?;
    let mut people = if path.exists() { keys::read_ring(path)?.people().to_vec() } else { Vec::new() };
    let new = Keyed { name: person.name.trim().to_owned(), key: person.key, role: person.role };
    people.push(new.clone());
    let ring = KeyRing::new(people).map_err(|error| anyhow::anyhow!("{error}: {}", path.display()))?;
    files::write_atomically(path, ring.to_json().as_bytes())?;
    let num = ring.people().len();
    if json {
        return output::json(&json!({"written": path, "added": new, "num_people": num}));
    }
    output::line(&format!("{} is in the list as {}: {}", new.name, new.role.one(), path.display()));
    Ok(())
}
