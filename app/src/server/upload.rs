//! Takes a file that a page sends, puts it into the served folder under a new name, whole or not at all. It never takes
//! the place of another, so what a session reads stays as it was.

mod draft;

use std::{
    io::{self, Write as _},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Extension,
    body::{Body, BodyDataStream},
    extract::{Path as InPath, State, rejection::PathRejection},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures_util::StreamExt as _;
use loka_core::{
    review::Role,
    session::{CommandError, FileKind, HEAD_BYTES},
};
use tempfile::NamedTempFile;
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, sleep, timeout, timeout_at},
};

use self::draft::{Kept, could_be, keep, new_draft, sweep};
use super::{
    auth::{Visitor, refusal},
    http::AppState,
    limits,
    user_store::UserHandle,
};

/// Where files are sent to: this, and their name.
pub const FILES: &str = "/files/";
/// As the router names it. Slashes are let through, to be refused with a line.
pub const ROUTE: &str = "/files/{*name}";

/// What a server takes.
#[derive(Debug)]
pub struct Uploads {
    most_bytes: u64,
    /// Why it takes none.
    closed: Option<&'static str>,
    places: Semaphore,
}

const ONE_TRACE: &str = "this server was started for one trace and takes no files: start it with a folder \
                         (loka serve FOLDER), or put the file beside the trace";
const TURNED_OFF: &str = "this server takes no files (--max-upload 0): put the file into the served folder";

impl Uploads {
    /// `of_folder`: a folder is served, and not one trace, whose folder was not meant.
    pub fn new(of_folder: bool, most_bytes: u64) -> Self {
        let closed = match most_bytes {
            _ if !of_folder => Some(ONE_TRACE),
            0 => Some(TURNED_OFF),
            _ => None,
        };
        Self { most_bytes, closed, places: Semaphore::new(limits::UPLOADS) }
    }

    /// Remains of a server that was killed; one that takes no files leaves others' alone.
    pub fn sweep(&self, folder: &Path) {
        if self.closed.is_none() {
            sweep(folder);
        }
    }
}

/// Of one connection: whether a file comes in on it. That has bounds of its own, see [`limits::UPLOAD_PACE`].
#[derive(Clone, Debug, Default)]
pub struct Incoming(Arc<AtomicBool>);

impl Incoming {
    fn begin(&self) -> Held {
        self.0.store(true, Ordering::Release);
        Held(self.clone())
    }

    /// Returns when that time has passed and no file comes in.
    pub async fn outlasted(&self, lifetime: Duration) {
        loop {
            sleep(lifetime).await;
            if !self.0.load(Ordering::Acquire) {
                return;
            }
        }
    }
}

struct Held(Incoming);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// What whoever sent it is told. The page adds the name.
struct Refusal(StatusCode, String);

fn refuse<T>(status: StatusCode, line: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(status, line.into()))
}

/// Answers `PUT /files/NAME`.
pub async fn put(
    State(behind): State<AppState>,
    Extension(Visitor(who)): Extension<Visitor>,
    Extension(incoming): Extension<Incoming>,
    name: Result<InPath<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let user_handle = behind.user_store.as_ref().zip(who).map(|(user_store, who)| user_store.user_handle(who));
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let mut body = body.into_data_stream();
    let taken = match name {
        Ok(InPath(name)) => {
            let sender = Sender { behind: &behind, user_handle, incoming };
            sender.take(&name, length, &mut body).await
        }
        Err(_) => refuse(StatusCode::BAD_REQUEST, "its name is no text"),
    };
    match taken {
        Ok(Kept::New) => (StatusCode::CREATED, "taken\n").into_response(),
        Ok(Kept::Same) => (StatusCode::OK, "the same file was there already\n").into_response(),
        Err(Refusal(status, line)) => {
            tokio::spawn(hear_out(body));
            refusal(status, &line)
        }
    }
}

/// The rest of what was refused, see [`limits::UPLOAD_HEARD_OUT`].
async fn hear_out(mut body: BodyDataStream) {
    let all = async { while let Some(Ok(_)) = body.next().await {} };
    drop(timeout(limits::UPLOAD_HEARD_OUT, all).await);
}

/// One request.
struct Sender<'a> {
    behind: &'a AppState,
    /// Where there is a list of people.
    user_handle: Option<UserHandle>,
    incoming: Incoming,
}

impl Sender<'_> {
    /// `length`: as the head says, where it does.
    async fn take(&self, name: &str, length: Option<u64>, body: &mut BodyDataStream) -> Result<Kept, Refusal> {
        let AppState { registry, uploads, .. } = self.behind;
        self.may()?;
        let (path, kind) = registry.served_dir.new_file(name).map_err(|line| Refusal(StatusCode::BAD_REQUEST, line))?;
        if length.is_some_and(|length| length > uploads.most_bytes) {
            return self.too_large();
        }
        let Ok(_place) = uploads.places.try_acquire() else {
            let line = format!("{} files are on their way to this server already: try again soon", limits::UPLOADS);
            return refuse(StatusCode::SERVICE_UNAVAILABLE, line);
        };
        // What cannot be kept is not sent for nothing.
        let at = path.clone();
        if !on_disk(move || could_be(&at, length)).await? {
            return other();
        }
        if registry.files().await.len() >= limits::LISTED {
            let line = format!("the served folder has the {} files that a server lists", limits::LISTED);
            return refuse(StatusCode::INSUFFICIENT_STORAGE, line);
        }
        let _held = self.incoming.begin();
        let draft = self.receive(kind, body).await?;
        // Who may do it can have changed while it came.
        self.may()?;
        let kept = on_disk(move || keep(draft, &path)).await?;
        registry.forget_files().await;
        kept.map_or_else(other, Ok)
    }

    fn may(&self) -> Result<(), Refusal> {
        let AppState { uploads, user_store, .. } = self.behind;
        if let Some(line) = uploads.closed {
            return refuse(StatusCode::FORBIDDEN, line);
        }
        if user_store.is_none() {
            return Ok(());
        }
        let Some(user) = self.user_handle.as_ref().and_then(UserHandle::user) else {
            return refuse(StatusCode::FORBIDDEN, "you are not on this server's list of people");
        };
        let needs = Role::Owner;
        if user.role < needs {
            let line = CommandError::NotAllowed { name: user.name, role: user.role, needs }.to_string();
            return refuse(StatusCode::FORBIDDEN, line);
        }
        Ok(())
    }

    fn too_large<T>(&self) -> Result<T, Refusal> {
        let most = self.behind.uploads.most_bytes >> 20;
        let line = format!("it is larger than the {most} MiB that this server takes (--max-upload)");
        refuse(StatusCode::PAYLOAD_TOO_LARGE, line)
    }

    /// All of it, in a file that is gone unless it is kept.
    async fn receive(&self, kind: FileKind, body: &mut BodyDataStream) -> Result<NamedTempFile, Refusal> {
        let root = self.behind.registry.served_dir.root().to_owned();
        let mut draft = on_disk(move || new_draft(&root)).await?;
        let (mut gathered, mut total, mut is_known) = (Vec::new(), 0, false);
        let mut pace = UploadPace::new();
        loop {
            let chunk = self.next(body, &pace).await?;
            let is_last = chunk.is_none();
            if let Some(chunk) = chunk {
                total += chunk.len() as u64;
                if total > self.behind.uploads.most_bytes {
                    return self.too_large();
                }
                pace.moved(chunk.len());
                gathered.extend_from_slice(&chunk);
            }
            if !is_known && (is_last || gathered.len() >= HEAD_BYTES) {
                check_content(kind, &gathered[..gathered.len().min(HEAD_BYTES)])?;
                is_known = true;
            }
            if is_last || gathered.len() >= limits::UPLOAD_WRITE {
                let bytes = std::mem::take(&mut gathered);
                draft = on_disk(move || draft.write_all(&bytes).map(|()| draft)).await?;
            }
            if is_last {
                return Ok(draft);
            }
        }
    }

    /// `None`: that was all.
    async fn next(&self, body: &mut BodyDataStream, pace: &UploadPace) -> Result<Option<bytes::Bytes>, Refusal> {
        tokio::select! {
            biased;
            () = self.behind.shutdown.began() => refuse(StatusCode::SERVICE_UNAVAILABLE, "the server is being stopped"),
            chunk = timeout_at(pace.due, body.next()) => match chunk {
                Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
                Ok(None) => Ok(None),
                Ok(Some(Err(_))) => refuse(StatusCode::BAD_REQUEST, "it broke off"),
                Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, "it came too slowly"),
            },
        }
    }
}

fn other<T>() -> Result<T, Refusal> {
    refuse(
        StatusCode::CONFLICT,
        "the served folder has another file of that name, which stays: give yours another name",
    )
}

/// Bytes have to come by then.
struct UploadPace {
    due: Instant,
    moved: u64,
}

impl UploadPace {
    fn new() -> Self {
        Self { due: Instant::now() + limits::UPLOAD_TURN, moved: 0 }
    }

    fn moved(&mut self, bytes: usize) {
        self.moved += bytes as u64;
        if self.moved >= limits::UPLOAD_PACE {
            *self = Self::new();
        }
    }
}

fn check_content(named: FileKind, head: &[u8]) -> Result<(), Refusal> {
    let line = match FileKind::of_content(head) {
        Ok(kind) if kind == named => return Ok(()),
        Ok(kind) => format!("its name says {}, its content {}", named.word(), kind.word()),
        Err(looks) => format!("no {}, as its name says: it looks like {looks}", named.word()),
    };
    refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, line)
}

/// What waits for the disk, on a thread that may.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T, Refusal> {
    let done = spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    done.map_err(|error| {
        // The kind alone: the whole error may hold a path of this machine.
        let (status, line) = match error.kind() {
            io::ErrorKind::StorageFull => (StatusCode::INSUFFICIENT_STORAGE, "the server's disk is full".to_owned()),
            io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                (StatusCode::INSUFFICIENT_STORAGE, "the server's disk takes no more of it".to_owned())
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (
                StatusCode::FORBIDDEN,
                "the server has no permission to write into the folder that it serves".to_owned(),
            ),
            kind => (StatusCode::INTERNAL_SERVER_ERROR, format!("the server could not keep it ({kind})")),
        };
        Refusal(status, line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_lasts_as_long_as_a_file_comes_in() {
        let (incoming, lifetime) = (Incoming::default(), Duration::from_millis(2));
        let held = incoming.begin();
        assert!(timeout(20 * lifetime, incoming.outlasted(lifetime)).await.is_err());
        drop(held);
        incoming.outlasted(lifetime).await;
    }
}
