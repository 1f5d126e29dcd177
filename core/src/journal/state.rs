//! The chain of what a journal keeps besides commands: takes checkpoints and events, gives a link that goes on with each;
//! takes them as they were read back, gives what is wrong with them. A checkpoint begins it anew, so that what came
//! before may go.

use rusqlite::Connection;
use sha2::{Digest, Sha256};

use super::chain::{Break, Chained, Link, put};

/// Before what is hashed: no other chain has its links.
const CHECKPOINT: &[u8] = b"loka-journal-checkpoint-v1\0";
const EVENT: &[u8] = b"loka-journal-event-v1\0";

/// With a checkpoint: `shares` by their keys, in the order of these, each with its SHA-256.
pub(super) fn checkpoint<'a>(
    seq: i64,
    trace_digest: &str,
    head: &[u8],
    shares: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Link {
    let mut hasher = Sha256::new_with_prefix(CHECKPOINT);
    put(&mut hasher, &seq.to_le_bytes());
    put(&mut hasher, trace_digest.as_bytes());
    put(&mut hasher, head);
    for (key, hash) in shares {
        put(&mut hasher, key);
        put(&mut hasher, hash);
    }
    Link::of_hash(hasher.finalize().into())
}

/// With one event more.
pub(super) fn event(before: Link, seq: i64, bytes: &[u8]) -> Link {
    let mut hasher = Sha256::new_with_prefix(EVENT);
    put(&mut hasher, before.bytes());
    put(&mut hasher, &seq.to_le_bytes());
    put(&mut hasher, bytes);
    Link::of_hash(hasher.finalize().into())
}

/// Everything that a session is restored from is as it was written. `first`: before any entry; `noted`: how far it goes
/// by what the journal says of itself.
pub(super) fn verify(
    connection: &Connection,
    first: Link,
    lines: &[Chained],
    noted: Link,
) -> rusqlite::Result<Result<(), Break>> {
    let (from, mut link) = match restored_from(connection)? {
        Some((seq, digest, head, kept)) => {
            let mut shares = Vec::new();
            let mut select = connection.prepare("SELECT key, hash, share FROM shares ORDER BY key")?;
            let mut rows = select.query([])?;
            while let Some(row) = rows.next()? {
                let (key, hash): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
                if Sha256::digest(row.get_ref(2)?.as_blob().unwrap_or_default()).as_slice() != hash {
                    return Ok(Err(Break::Checkpoint));
                }
                shares.push((key, hash));
            }
            let pairs = shares.iter().map(|(key, hash)| (key.as_slice(), hash.as_slice()));
            let link = checkpoint(seq, &digest, &head, pairs);
            if link != kept {
                return Ok(Err(Break::Checkpoint));
            }
            (seq, link)
        }
        None => (0, first),
    };
    let mut later = lines.iter().map(|found| &found.line).filter(|line| line.seq > from).peekable();
    let mut select = connection.prepare("SELECT seq, event FROM events WHERE seq > ?1 ORDER BY seq")?;
    let mut rows = select.query([from])?;
    while let Some(row) = rows.next()? {
        let seq: i64 = row.get(0)?;
        while let Some(line) = later.next_if(|line| line.seq < seq) {
            if line.state != link {
                return Ok(Err(Break::Events(line.seq)));
            }
        }
        link = event(link, seq, row.get_ref(1)?.as_blob().unwrap_or_default());
    }
    if let Some(line) = later.find(|line| line.state != link) {
        return Ok(Err(Break::Events(line.seq)));
    }
    Ok(if link == noted { Ok(()) } else { Err(Break::LastEvents) })
}

/// The last checkpoint: its number, the trace's digest, the session without its rows, its link.
type KeptHead = (i64, String, Vec<u8>, Link);

fn restored_from(connection: &Connection) -> rusqlite::Result<Option<KeptHead>> {
    let mut select = connection.prepare("SELECT seq, trace_digest, head, state FROM head")?;
    let mut rows = select.query([])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let link = Link::of_bytes(row.get_ref(3)?.as_blob().unwrap_or_default());
    Ok(Some((row.get(0)?, row.get(1)?, row.get(2)?, link)))
}
