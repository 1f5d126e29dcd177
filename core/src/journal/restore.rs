//! Takes a journal and what the trace is that was opened, by stamp and digest; gives the session that was left, or why it cannot
//! be taken up.

use std::collections::BTreeMap;

use super::{
    Break,
    file::File,
    trail::{About, lines},
};
use crate::{
    model::Moment,
    session::{
        Command, Event, SavedSession, SessionHeader,
        shared::{Author, CommandContext, SequencedInput, SequencedSession, SessionInput},
    },
};

/// What was left.
pub struct Restored {
    pub ordered: SequencedSession,
    /// How many commands there are in the journal.
    pub num_commands: u64,
    /// It was kept before the trace's digest was known.
    pub lacks_digest: bool,
}

/// `Ok(None)`: it is new. `Err`: one line.
pub(super) fn restore(file: &mut File, stamp: &str, digest: &str) -> Result<Option<Restored>, String> {
    if !file.is_ours() {
        return Err("it was written by another version of LoKA".to_owned());
    }
    let found = head(file)?;
    let lines = lines(&file.connection).map_err(text)?;
    let nothing = found.is_none() && lines.is_empty();
    match About::of(&file.connection).map_err(text)? {
        // New, or never used: it begins anew.
        None if nothing => return Ok(None),
        None => return Err(format!("its trail is broken ({})", Break::Unsigned)),
        Some(about) => {
            let checked = about.check(&file.connection, &lines).map_err(text)?;
            checked.map_err(|wrong| format!("its trail is broken ({wrong})"))?;
            if about.is_of(stamp, digest) {
                file.go_on(about.chain, about.state);
            } else if nothing {
                return Ok(None);
            } else {
                return Err("the trace is not the one that it was kept for".to_owned());
            }
        }
    }
    let Some((seq, head)) = found else { return Ok(None) };
    let shares = file.shares()?;
    let commands = commands(file, seq)?;
    let mut ordered = SequencedSession::of(SavedSession { head, shares }, seq.cast_unsigned());
    for input in in_order(commands, events(file, seq)?) {
        // Its own count: passing events had no number here.
        let step = SequencedInput { seq: ordered.seq() + 1, input };
        ordered.follow(step).map_err(|error| error.to_string())?;
    }
    for (author, number) in heard(file)? {
        ordered.remember(author, number);
    }
    ordered.session.awaken();
    let lacks_digest = ordered.session.trace.as_ref().is_some_and(|trace| trace.meta.trace_digest.is_empty());
    Ok(Some(Restored { ordered, num_commands: lines.len() as u64, lacks_digest }))
}

#[expect(clippy::needless_pass_by_value, reason = "it is a step of map_err")]
fn text(error: rusqlite::Error) -> String {
    format!("it cannot be read ({error})")
}

fn head(file: &File) -> Result<Option<(i64, SessionHeader)>, String> {
    let mut select = file.connection.prepare("SELECT seq, head FROM head").map_err(text)?;
    let mut rows = select.query([]).map_err(text)?;
    let Some(row) = rows.next().map_err(text)? else { return Ok(None) };
    let bytes: Vec<u8> = row.get(1).map_err(text)?;
    let head = postcard::from_bytes(&bytes).map_err(|error| format!("its checkpoint cannot be read ({error})"))?;
    Ok(Some((row.get(0).map_err(text)?, head)))
}

fn commands(file: &File, after: i64) -> Result<BTreeMap<i64, SessionInput>, String> {
    let sql = "SELECT seq, at_ms, author_key, author, role, number, seen, command FROM commands WHERE seq > ?1";
    let mut select = file.connection.prepare(sql).map_err(text)?;
    let mut rows = select.query([after]).map_err(text)?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next().map_err(text)? {
        let whole = |at| row.get::<_, i64>(at).map_err(text);
        let word = |at| row.get::<_, String>(at).map_err(text);
        let (seq, json) = (whole(0)?, word(7)?);
        let role = word(4)?.parse().map_err(|error| format!("command {seq} cannot be read ({error})"))?;
        let author = Author { key: whole(2)?.cast_unsigned(), name: word(3)?, role };
        let (number, seen) = (whole(5)?.cast_unsigned(), whole(6)?.cast_unsigned());
        let by = CommandContext { author, number, seen, at: Moment(whole(1)?) };
        let command: Command =
            serde_json::from_str(&json).map_err(|error| format!("command {seq} cannot be read ({error})"))?;
        found.insert(seq, SessionInput::Command { by, command });
    }
    Ok(found)
}

fn events(file: &File, after: i64) -> Result<BTreeMap<i64, SessionInput>, String> {
    let mut select = file.connection.prepare("SELECT seq, event FROM events WHERE seq > ?1").map_err(text)?;
    let mut rows = select.query([after]).map_err(text)?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next().map_err(text)? {
        let seq: i64 = row.get(0).map_err(text)?;
        let bytes = row.get_ref(1).and_then(|value| Ok(value.as_blob()?)).map_err(text)?;
        let event: Event =
            postcard::from_bytes(bytes).map_err(|error| format!("event {seq} cannot be read ({error})"))?;
        found.insert(seq, SessionInput::Event(Box::new(event)));
    }
    Ok(found)
}

fn in_order(
    mut commands: BTreeMap<i64, SessionInput>,
    events: BTreeMap<i64, SessionInput>,
) -> impl Iterator<Item = SessionInput> {
    commands.extend(events);
    commands.into_values()
}

fn heard(file: &File) -> Result<Vec<(u64, u64)>, String> {
    let sql = "SELECT author_key, MAX(number) FROM commands WHERE author_key <> 0 GROUP BY author_key";
    let mut select = file.connection.prepare(sql).map_err(text)?;
    let pairs = select.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).map_err(text)?;
    pairs.map(|pair| pair.map(|(key, number)| (key.cast_unsigned(), number.cast_unsigned())).map_err(text)).collect()
}
