//! What goes between a window and the server of its session, and how it is coded.
//!
//! A message is one byte (0: plain, 1: LZ4 with its length in front), then postcard's coding of [`ToServer`] or
//! [`ToClient`]. Both ends say [`PROTOCOL`] first; another number ends the talk with a reason.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    model::SiteId,
    review::Role,
    session::{Command, Event, RowChunk, SessionHeader},
    views::drift::Followed,
};

use super::{Author, SequencedInput};

/// Goes up with every change of what is coded: the coding has no names to tell an old field by.
pub const PROTOCOL: u32 = 10;

/// Bytes of a message to the server, decoded. Commands are small; one can name every site of a large trace.
pub const MAX_TO_SERVER: usize = 4 << 20;
/// Bytes of a message to a window, decoded.
pub const MAX_TO_CLIENT: usize = 256 << 20;

/// Seconds. A server says something at least every third part of it.
pub const SILENCE: f64 = 25.0;

/// Characters of an author's name.
pub const NAME_LENGTH: usize = 64;

/// Messages below this are sent as they are: LZ4 gains nothing on them.
const PLAIN: usize = 1024;

const AS_IT_IS: u8 = 0;
const LZ4: u8 = 1;

/// The first message of a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// The program's version, for the line that says which of the two is old.
    pub version: String,
    /// The window's own number: see [`super::Author::key`].
    pub key: u64,
    pub name: String,
    /// A trace of the served folder; `None`: the server's own, if it has one.
    pub trace: Option<String>,
    /// The session and the last step that the window has, to go on from there.
    pub resume: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToServer {
    Hello(Hello),
    /// Another trace's session from now on.
    Join {
        trace: String,
    },
    Command {
        number: u64,
        /// See [`super::CommandContext::seen`].
        seen: u64,
        command: Box<Command>,
    },
    /// Where this person looks, for the others.
    At(Place),
    /// For this window alone; answered by [`ToClient::Answer`].
    Ask(ClientQuery),
}

/// Where somebody looks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub site: Option<SiteId>,
    /// The title of a view.
    pub view: String,
}

/// What a window wants to know for itself. The answers are Events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientQuery {
    /// A site's distributions, in the open trace or in another of the folder.
    Inspect {
        site: SiteId,
        other: Option<String>,
    },
    Series,
    Identify {
        path: String,
    },
    /// All sites of a trace of the folder beside those of the open one.
    Compare {
        path: String,
    },
    /// The open trace's run over its checkpoints in the folder.
    Checkpoints {
        followed: Box<Followed>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    pub protocol: u32,
    pub version: String,
    /// This session of this trace; 0: no trace is chosen yet.
    pub session: u64,
    /// The window goes on from the step it had; else a [`ToClient::SavedSession`] comes.
    pub resumed: bool,
    /// The last command of this window that was answered.
    pub heard: u64,
    /// As whom the server knows this window.
    pub me: Author,
    /// What can be opened: names in the served folder.
    pub files: Vec<String>,
}

/// Somebody with a window on the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Person {
    pub key: u64,
    pub name: String,
    pub role: Role,
    pub at: Place,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToClient {
    Welcome(Welcome),
    /// The session after step `seq`, but for its rows: that many shares of them follow.
    Saved {
        seq: u64,
        num_shares: u64,
        head: Box<SessionHeader>,
    },
    Shares(Vec<RowChunk>),
    Steps(Vec<SequencedInput>),
    /// Of a command of this window.
    Refused {
        number: u64,
        reason: String,
    },
    Answer(Box<Event>),
    Present(Vec<Person>),
    /// The server ends the talk. `again`: it is worth trying later.
    Closing {
        reason: String,
        again: bool,
    },
    /// Says nothing, now and then: a window that hears none for [`SILENCE`] has lost its server.
    Alive,
}

/// Why a message cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error("the message is empty")]
    Empty,
    #[error("the message has {0} bytes, more than the {1} allowed")]
    TooLarge(usize, usize),
    #[error("the message is not of this protocol ({0})")]
    Broken(String),
}

pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    // Plain data has a coding; what had none would be refused by the other end as empty.
    let Ok(mut bytes) = postcard::to_extend(message, vec![AS_IT_IS]) else { return Vec::new() };
    if bytes.len() > PLAIN {
        let packed = lz4_flex::compress_prepend_size(&bytes[1..]);
        if packed.len() + 1 < bytes.len() {
            bytes.clear();
            bytes.push(LZ4);
            bytes.extend(packed);
        }
    }
    bytes
}

/// `most`: bytes of the unpacked message. Nothing larger is ever in memory.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], most: usize) -> Result<T, WireError> {
    unpacked_size(bytes, most)?;
    whole(&unpacked(bytes)?)
}

/// Bytes of the message once it is unpacked, as it says itself; another number is an error when it is.
pub fn unpacked_size(bytes: &[u8], most: usize) -> Result<usize, WireError> {
    let (coding, rest) = bytes.split_first().ok_or(WireError::Empty)?;
    let size = match (*coding, rest.first_chunk::<4>()) {
        (LZ4, Some(size)) => rest.len().max(u32::from_le_bytes(*size) as usize),
        (LZ4, None) => return Err(WireError::Broken("it is cut".to_owned())),
        _ => rest.len(),
    };
    if size > most { Err(WireError::TooLarge(size, most)) } else { Ok(size) }
}

fn unpacked(bytes: &[u8]) -> Result<Cow<'_, [u8]>, WireError> {
    match bytes.split_first().ok_or(WireError::Empty)? {
        (&AS_IT_IS, rest) => Ok(Cow::Borrowed(rest)),
        (&LZ4, rest) => {
            let plain = lz4_flex::decompress_size_prepended(rest);
            Ok(Cow::Owned(plain.map_err(|error| WireError::Broken(error.to_string()))?))
        }
        (other, _) => Err(WireError::Broken(format!("coding {other}"))),
    }
}

/// A message to the server that is unpacked and not made yet: made, it can be fifty times as large.
pub struct Unread<'a> {
    plain: Cow<'a, [u8]>,
}

impl<'a> Unread<'a> {
    /// `most`: bytes of the unpacked message.
    pub fn of(bytes: &'a [u8], most: usize) -> Result<Self, WireError> {
        unpacked_size(bytes, most)?;
        Ok(Self { plain: unpacked(bytes)? })
    }

    /// Of a command: its number, and the least role that may ask for it.
    pub fn command(&self) -> Option<(u64, Role)> {
        let (variant, rest) = postcard::take_from_bytes::<u32>(&self.plain).ok()?;
        if variant != COMMAND {
            return None;
        }
        let ((number, _seen, place), _) = postcard::take_from_bytes::<(u64, u64, u32)>(rest).ok()?;
        Some((number, Command::needed_at(place)))
    }

    pub fn read(&self) -> Result<ToServer, WireError> {
        whole(&self.plain)
    }
}

/// [`ToServer::Command`]'s place in its list.
const COMMAND: u32 = 2;

fn whole<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(WireError::Broken(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(WireError::Broken(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
