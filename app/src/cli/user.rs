//! `loka user`: makes and changes the list of people that `loka serve --users` asks.

use std::path::{Path, PathBuf};

use loka_core::review::Role;
use serde_json::json;

use super::output::{self, Outcome, TextTable};
use crate::{
    files,
    server::{People, Token, token_query, user_store},
};

#[derive(clap::Args, Debug)]
pub struct UserArgs {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(clap::Subcommand, Debug)]
enum UserCommand {
    /// Put somebody on the list. Their token is shown this once, as the end of the link to send them.
    Add {
        name: String,
        /// viewer, reviewer, approver or owner.
        #[arg(long)]
        role: Role,
        /// The list; made where there is none.
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
    },
    /// Who is on the list.
    List {
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
    },
    /// Take somebody off the list. A running server closes their windows.
    Remove {
        name: String,
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
    },
    /// Let somebody do more or less from now on, on a running server, too.
    Role {
        name: String,
        /// viewer, reviewer, approver or owner.
        role: Role,
        #[arg(long, value_name = "FILE")]
        users: PathBuf,
    },
}

pub fn run(args: &UserArgs, json: bool) -> anyhow::Result<Outcome> {
    match &args.command {
        UserCommand::Add { name, role, users } => add(name, *role, users, json)?,
        UserCommand::List { users } => list(&read(users)?, json)?,
        UserCommand::Remove { name, users } => change(users, |people| people.remove(name))?,
        UserCommand::Role { name, role, users } => change(users, |people| people.set_role(name, *role))?,
    }
    Ok(Outcome::Done)
}

fn read(users: &Path) -> anyhow::Result<People> {
    user_store::read(users).map_err(anyhow::Error::msg)
}

fn change(users: &Path, with: impl FnOnce(&mut People) -> Result<(), String>) -> anyhow::Result<()> {
    let _turn = files::lock(users)?;
    let mut people = read(users)?;
    with(&mut people).map_err(|line| anyhow::anyhow!("{line}: {}", users.display()))?;
    user_store::write(users, &people)
}

fn add(name: &str, role: Role, users: &Path, json: bool) -> anyhow::Result<()> {
    let _turn = files::lock(users)?;
    // A link that leads nowhere is no list that could be made.
    let mut people = if users.symlink_metadata().is_ok() { read(users)? } else { People::default() };
    let token = Token::random().map_err(anyhow::Error::msg)?;
    people.add(name, role, token.digest()).map_err(|line| anyhow::anyhow!("{line}: {}", users.display()))?;
    user_store::write(users, &people)?;
    let query = token_query(&token);
    if json {
        return output::json(&json!({"name": name, "role": role, "token": token.text(), "query": query}));
    }
    output::note(&format!(
        "{name} is {} from now on. Send them the server's address with this at its end; it is not shown again:",
        role.one()
    ));
    output::line(&query);
    Ok(())
}

fn list(people: &People, json: bool) -> anyhow::Result<()> {
    if json {
        for user in people.users() {
            output::json(&json!({"name": user.name, "role": user.role}))?;
        }
        return Ok(());
    }
    let mut table = TextTable::new(&["name", "role"]);
    for user in people.users() {
        table.row([user.name.clone(), user.role.to_string()]);
    }
    table.print();
    Ok(())
}
