//! `loka mcp`: a session for an assistant, on stdin and stdout.

use std::path::PathBuf;

use loka_core::{
    model::{visible, visible_within},
    review::Role,
    session::shared::{Author, NAME_LENGTH},
};

use super::output::Outcome;
use crate::{
    files,
    mcp::{self, Access, Ears, Host, Seat, Served},
    platform::ThreadExecutor,
};

/// Characters of a name that is refused.
const SHOWN: usize = 80;

#[derive(clap::Args, Debug)]
#[command(
    after_help = "Stdout has messages of the Model Context Protocol and nothing else. To let an assistant act in the \
                        session that people have open, serve it (`loka serve`) and join it with --connect; a session that \
                        a window has for itself cannot be joined."
)]
pub struct McpArgs {
    /// A trace, results, plans to compare with: opened as `loka open` would. Not with --connect.
    #[arg(value_name = "TRACE|RESULTS|PLAN", required_unless_present = "connect", conflicts_with = "connect")]
    files: Vec<PathBuf>,
    /// Joins the session of a `loka serve`: its address, or a whole link of it. People there see the assistant among them.
    #[arg(long, value_name = "LINK")]
    connect: Option<String>,
    /// The token of the served workbench, from a file: a link in an argument is seen by everyone on this machine.
    #[arg(long, value_name = "FILE", requires = "connect")]
    token_file: Option<PathBuf>,
    /// A trace of a served folder.
    #[arg(long, value_name = "NAME", requires = "connect")]
    trace: Option<String>,
    /// PEM of the authority that signed the server's certificate, where this machine does not trust it.
    #[arg(long, value_name = "FILE", requires = "connect")]
    ca: Option<PathBuf>,
    /// Lets the assistant change the session: policy, overrides, mods, comments, undo. Without it nothing can be changed,
    /// and the journal beside a trace is read and left alone.
    #[arg(long)]
    allow_changes: bool,
    /// What the journal and other people call the assistant. A server with a list of people goes by its own.
    #[arg(long, value_name = "NAME", default_value = "assistant")]
    name: String,
}

pub fn run(args: McpArgs) -> anyhow::Result<Outcome> {
    let access = if args.allow_changes { Access::Changes } else { Access::ReadOnly };
    let author = author(&args.name, access)?;
    let ears = Ears::default();
    let wake = ears.wake();
    let seat = match &args.connect {
        Some(link) => {
            let token = args.token_file.as_deref().map(files::read_text).transpose()?;
            let token = token.map(|token| token.trim().to_owned());
            let mut to = Served::parse(link, token).map_err(anyhow::Error::msg)?;
            to.trace = args.trace.or(to.trace);
            let certificate = args.ca.as_deref().map(|path| files::read(path, files::SMALL)).transpose()?;
            mcp::join(to, author, certificate.as_deref(), &wake).map_err(anyhow::Error::msg)?
        }
        None => {
            for file in &args.files {
                anyhow::ensure!(file.exists(), "no such file or folder: {}", file.display());
            }
            let executor = ThreadExecutor::new(wake);
            let executor = match access {
                Access::Changes => executor.with_journal(),
                Access::ReadOnly => executor.with_what_was_left(),
            };
            Seat::open(executor, author, args.files.iter().map(|path| path.to_string_lossy().into_owned()).collect())
        }
    };
    let host = Host::new(ears, seat, access, std::io::stdin(), Box::new(std::io::stdout()), mcp::perform);
    host.map_err(anyhow::Error::msg)?.run();
    Ok(Outcome::Done)
}

/// Another key each time: what an earlier process asked for under the same number is not taken for sent again.
fn author(name: &str, access: Access) -> anyhow::Result<Author> {
    let name = name.trim();
    let fits = !name.is_empty() && name.chars().count() <= NAME_LENGTH && visible(name) == name;
    anyhow::ensure!(fits, "'{}' is no name: one line of up to {NAME_LENGTH} characters", visible_within(name, SHOWN));
    let mut key = [0; 8];
    getrandom::fill(&mut key).map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    let role = if access == Access::Changes { Role::Owner } else { Role::Viewer };
    Ok(Author { key: u64::from_le_bytes(key).max(1), name: name.to_owned(), role })
}
