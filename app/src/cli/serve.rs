//! `loka serve`: the workbench for browsers.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use clap::{Args as _, FromArgMatches as _};
use loka_core::trace::Trace;
use serde_json::json;

use super::output::{self, Outcome};
use crate::{
    files, keys,
    server::{Bounds, Options, Server, Token, limits},
};

#[derive(clap::Args, Debug)]
pub struct ServeArgs {
    /// A trace, whose folder is served with it as the first one; or a folder of traces.
    #[arg(value_name = "TRACE|FOLDER")]
    path: PathBuf,
    /// Where to listen. Port 0 takes a free one. Other machines reach only an address that is not of loopback.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = limits::LISTEN)]
    listen: String,
    /// Who opens the page needs this token. Made up unless given: every user of a machine reaches its loopback.
    #[arg(long, conflicts_with = "token_file")]
    token: Option<String>,
    /// The same from a file: an argument is seen by everyone on this machine.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Whoever reaches the page comes in, as its owner: only on loopback, where all users of this machine are trusted.
    #[arg(long, conflicts_with_all = ["token", "token_file", "users"])]
    no_token: bool,
    /// Everybody comes in by a link of their own and does what their role allows: the list that `loka user` makes.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["token", "token_file"])]
    users: Option<PathBuf>,
    /// The team's list of keys (`loka key add`): a version counts as approved by it. Without it windows say that keys were
    /// not checked.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// A name under which a proxy makes this server known. May be given again.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Wrong tokens are counted by the last address in X-Forwarded-For: only behind a proxy that writes it, or anybody
    /// can make one up.
    #[arg(long)]
    trust_forwarded_for: bool,
    /// Speak HTTPS with this certificate: PEM, the chain in one file.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A page that scripts/build_web.sh made, in place of the one that is built in.
    #[arg(long, value_name = "FOLDER")]
    page: Option<PathBuf>,
    /// Windows at a time.
    #[arg(long, value_name = "N", default_value_t = limits::MAX_CLIENTS, value_parser = at_least_one)]
    max_clients: usize,
    /// Traces open at a time.
    #[arg(long, value_name = "N", default_value_t = limits::MAX_SESSIONS, value_parser = at_least_one)]
    max_sessions: usize,
    /// Messages a second from one window, above which it is closed.
    #[arg(long, value_name = "N", default_value_t = limits::MESSAGES_PER_SECOND,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_messages: u32,
    /// A window that is further behind gets the whole session instead of its steps.
    #[arg(long, value_name = "MIB", default_value_t = limits::RING_MIB, value_parser = at_least_one)]
    max_behind: usize,
    /// The largest file that a page may put into the served folder, under a new name: with --users only an owner's
    /// page, else anybody's who comes in. 0 takes none.
    #[arg(long, value_name = "MIB", default_value_t = limits::UPLOAD_MIB,
          value_parser = clap::value_parser!(u64).range(0..=1 << 20))]
    max_upload: u64,
}

impl ServeArgs {
    /// As of `loka serve PATH`, with nothing else said.
    fn of(path: &Path) -> Result<Self, clap::Error> {
        let command = Self::augment_args(clap::Command::new("serve").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from([OsStr::new("--"), path.as_os_str()])?)
    }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| (1..=100_000).contains(number)).ok_or("a number from 1 to 100000".to_owned())
}

pub fn run(args: ServeArgs, json: bool) -> anyhow::Result<Outcome> {
    serve(args, "The workbench is served until Ctrl+C. Open it in a browser:", json)
}

/// As `loka serve PATH` does, where a window was asked for. `why`: there is none.
pub fn in_place_of_a_window(path: &Path, page: Option<PathBuf>, why: &str, json: bool) -> anyhow::Result<Outcome> {
    // Nobody asked for a port: where another server has the usual one, any will do.
    let is_free = std::net::TcpListener::bind(limits::LISTEN).is_ok();
    let listen = if is_free { limits::LISTEN } else { limits::LISTEN_ON_ANY_PORT };
    let args = ServeArgs { page, listen: listen.to_owned(), ..ServeArgs::of(path)? };
    let note = format!(
        "No window: {why}. The workbench is served to browsers on this machine until Ctrl+C. Open it in a browser:"
    );
    serve(args, &note, json)
}

/// `note`: above the address.
fn serve(args: ServeArgs, note: &str, json: bool) -> anyhow::Result<Outcome> {
    let (folder, trace) = served(&args.path)?;
    let token = token(&args)?;
    let bounds = Bounds {
        clients: args.max_clients,
        sessions: args.max_sessions,
        messages_per_second: args.max_messages,
        ring_bytes: args.max_behind << 20,
        upload_bytes: args.max_upload << 20,
    };
    let options = Options {
        folder,
        trace,
        listen: args.listen,
        token,
        no_token: args.no_token,
        users: args.users,
        keys: args.keys.as_deref().map(keys::read_ring).transpose()?,
        allow_hosts: args.allow_host,
        trust_forwarded_for: args.trust_forwarded_for,
        tls: args.tls_cert.zip(args.tls_key),
        page: args.page,
        bounds,
    };
    let server = Server::new(options).map_err(anyhow::Error::msg)?;
    let (link, address) = (server.link(), server.address());
    let ready = move || {
        if json {
            // A line of text and numbers can be written.
            drop(output::json(&json!({"address": address, "link": link})));
        } else {
            output::line(&link);
        }
    };
    output::note(note);
    server.run(ready).map_err(anyhow::Error::msg)?;
    Ok(Outcome::Done)
}

/// The folder, and the trace in it that was named.
fn served(path: &Path) -> anyhow::Result<(PathBuf, Option<String>)> {
    let about =
        std::fs::metadata(path).map_err(|error| anyhow::anyhow!("{}: {}", files::reason(&error), path.display()))?;
    if about.is_dir() {
        return Ok((path.to_owned(), None));
    }
    // Before anything listens: what cannot be opened cannot be served.
    Trace::open(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| anyhow::anyhow!("its name is no text: {}", path.display()))?;
    Ok((folder.to_owned(), Some(name.to_owned())))
}

fn token(args: &ServeArgs) -> anyhow::Result<Option<Token>> {
    let text = match &args.token_file {
        Some(path) => Some((files::read_text(path)?.trim_end().to_owned(), path.display().to_string())),
        None => args.token.clone().map(|text| (text, "--token".to_owned())),
    };
    let Some((text, from)) = text else { return Ok(None) };
    Ok(Some(Token::parse(&text).map_err(|line| anyhow::anyhow!("{line}: {from}"))?))
}
