//! Every bound of the server in one place, each with its reason: what one client, or many, may cost.

use std::time::Duration;

/// Where the server listens unless told otherwise: nobody but this machine.
pub const LISTEN: &str = "127.0.0.1:7878";

/// The same on whatever port is free.
pub const LISTEN_ON_ANY_PORT: &str = "127.0.0.1:0";

/// Threads for sockets. The cores belong to the engine; two carry hundreds of clients.
pub const WORKER_THREADS: usize = 2;

/// A meeting of reviewers, twice.
pub const MAX_CLIENTS: usize = 256;

/// Every session holds a trace's rows and a thread.
pub const MAX_SESSIONS: usize = 16;

/// TCP connections that are not (yet) a live client: a browser opens six for a page.
pub const MAX_CONNECTIONS: usize = 512;

/// The largest message from a client. A plan's worth of overrides at 10,000 sites is half of it.
pub const MESSAGE_BYTES: usize = 1 << 20;

/// Messages a second from one client. A drag sends one a frame, 60 to 120 a second.
pub const MESSAGES_PER_SECOND: u32 = 200;

/// Bytes a second from one client, for each message that it may send: 2 MB with 200 of them. A burst of four messages
/// of the largest size is let through.
pub const BYTES_PER_MESSAGE: u32 = 10 << 10;

/// A request's head: a cookie and a dozen headers.
pub const HEAD_BYTES: usize = 16 << 10;

/// For a request's head, and between two requests of one connection: a slow sender holds no place.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// How long one that was sent away may take to make way for another, before the next one is.
pub const MAKES_WAY: Duration = Duration::from_millis(20);

/// For the TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one connection may serve plain HTTP, so that a slow reader ends too: 4 MB at 14 kB a second. A file that
/// comes in has a pace of its own to keep (`UPLOAD_PACE`) and is not cut off by this.
pub const HTTP_LIFETIME: Duration = Duration::from_secs(300);

/// At the end of the server, for requests and clients under way.
pub const FAREWELL: Duration = Duration::from_secs(3);

/// Wrong tokens and cookies a second from one address. Sixteen characters stay unguessed for ages.
pub const WRONG_PER_SECOND: u32 = 5;

/// A page that reconnects with an old cookie tries a few times at once.
pub const WRONG_BURST: u32 = 20;

/// Addresses whose wrong tokens are counted one by one; beyond that they share one count.
pub const WRONG_ADDRESSES: usize = 4096;

/// How long the answer to a wrong token takes.
pub const WRONG_DELAY: Duration = Duration::from_millis(200);

/// A token that a person makes up.
pub const TOKEN_CHARACTERS: std::ops::RangeInclusive<usize> = 16..=256;

/// Files of the page, and their bytes together: it is ours, but `--page` may name the wrong folder.
pub const PAGE_FILES: usize = 200;
pub const PAGE_BYTES: u64 = 256 << 20;

/// Entries of the served folder that are listed, folders below it, and entries that are looked at for that.
pub const LISTED: usize = 1000;
pub const LISTED_DEPTH: usize = 2;
pub const LOOKED_AT: usize = 20_000;

/// Characters of a name that a client sends: longer ones are no names of files.
pub const NAME_BYTES: usize = 4096;

/// Bytes of the first message of a client, unpacked: names and numbers.
pub const HELLO_BYTES: usize = 16 << 10;

/// Messages above it are read on a thread of their own, so many at a time: a list of names takes a while to make.
pub const LARGE_MESSAGE: usize = 64 << 10;
pub const LARGE_AT_ONCE: usize = 2;

/// The first message of a client, after the WebSocket is there.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a client is pinged, and told that we are there, which a page sees where it sees no ping; and how long it
/// may say nothing at all: a browser answers a ping by itself.
pub const PING_EVERY: Duration = Duration::from_secs(8);
pub const SILENCE: Duration = Duration::from_secs(65);

/// How long one message may wait for a client that reads slowly; a part of a session is a quarter of a megabyte.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// Clients beyond the most that are told so before they are closed.
pub const TURNED_AWAY: usize = 32;

/// Commands of all clients that wait for a session's thread: beyond it their senders wait.
pub const COMMANDS_WAITING: usize = 256;

/// Answers and refusals that wait for a client to read them; one that has more asks without listening.
pub const ANSWERS_WAITING: usize = 256;

/// Questions of one client under way, and threads that answer those of all clients.
pub const QUESTIONS_WAITING: usize = 16;
pub const ASKERS: usize = 2;

/// Steps that a client may be behind before it gets the whole session instead, in bytes as they are sent.
pub const RING_MIB: usize = 32;

/// A step of more rows is not sent: everyone gets the session instead, which comes in parts and shows how far it is.
pub const STEP_ROWS: usize = 20_000;

/// Frames that one look takes from the ring.
pub const FRAMES_AT_ONCE: usize = 64;

/// Events are gathered for so long before they are sent, and longer with many clients: to send costs a system call
/// a client, and the cores are the engine's. 200 clients: 75 ms. A command is sent at once.
pub const FRAME_EVERY: Duration = Duration::from_millis(30);
pub const FRAME_PER_CLIENT: Duration = Duration::from_micros(375);

/// Of each turn of a session's thread, so that commands never wait longer.
pub const EVENTS_AT_ONCE: usize = 2000;

/// Rows in one part of a session on its way.
pub const SHARE_ROWS: usize = 2000;

/// A session that was coded this lately is good for whoever joins now: the steps since then follow.
pub const SNAPSHOT_LASTS: Duration = Duration::from_secs(2);
/// And so long it is kept.
pub const SNAPSHOT_KEPT: Duration = Duration::from_secs(15);

/// Who is there is told at most that often.
pub const PRESENCE_EVERY: Duration = Duration::from_millis(300);

/// A session that nobody looks at and where nothing runs.
pub const IDLE_SESSION: Duration = Duration::from_secs(600);

/// A session's thread looks around at least that often.
pub const TURN: Duration = Duration::from_millis(500);

/// Notices that a joining window is shown; nobody dismisses them on a server.
pub const NOTICES: usize = 24;

/// The folder is not walked through again for that long.
pub const LISTING_LASTS: Duration = Duration::from_secs(3);

/// Characters of a reason, and of the name of a site, kernel, engine or policy.
pub const REASON_CHARACTERS: usize = 4000;
pub const WORD_CHARACTERS: usize = 1000;

/// Draws of one site that a client may ask for: ten times what the workbench offers.
pub const DRAWS: u64 = 100_000;

/// Bytes that may wait in a WebSocket for the system to take them: one message to a client, of which none is larger.
pub const WRITE_BUFFER: usize = 256 << 20;

/// Threads for what would hold up the sockets: questions, listings, coding a session.
pub const BLOCKING_THREADS: usize = 8;

/// One file that a page sends, in MiB, unless told otherwise: what a page without a server takes. All files together
/// are bounded by their number: a folder that lists `LISTED` gets no more.
pub const UPLOAD_MIB: u64 = 1024;

/// Files that come in at a time: one is faster alone, and each may keep one of the threads below busy.
pub const UPLOADS: usize = 2;

/// What is left of a file that was on its way when a server was killed: so old, and held by nobody, it is removed.
pub const DRAFT_IS_OLD: Duration = Duration::from_secs(60);

/// What file systems take as a name.
pub const UPLOAD_NAME_BYTES: usize = 255;

/// A file that comes in has to come on by so many bytes in that time: 17 kB a second, where a telephone has more. Who
/// sends nothing is let go as early as one who sends no head.
pub const UPLOAD_PACE: u64 = 256 << 10;
pub const UPLOAD_TURN: Duration = HEAD_TIMEOUT;

/// Gathered before the disk is asked: that costs a change of threads.
pub const UPLOAD_WRITE: usize = 1 << 20;

/// How long a file that was refused is listened to. A browser reads the answer when it has sent all or can send no
/// more, and a connection that is closed too early takes the answer with it.
pub const UPLOAD_HEARD_OUT: Duration = Duration::from_secs(5);

/// Windows whose last refusal a session remembers, for those that lost their connection before they heard it.
pub const REFUSED_KEPT: usize = 1024;

/// People on a list, and the bytes of its file.
pub const PEOPLE: usize = 1000;
pub const PEOPLE_BYTES: u64 = 1 << 20;

/// How often the list of people is looked at: so long a role that was changed may still be the old one.
pub const PEOPLE_EVERY: Duration = Duration::from_millis(500);

/// Marks and comments of a session: everyone who joins gets all of them, in one message.
pub const MARKS: usize = 200_000;
pub const COMMENTS: usize = 20_000;
pub const COMMENTS_BYTES: usize = 32 << 20;

/// Of what a mark or a look remembers.
pub const FINGERPRINT_BYTES: usize = loka_core::plan::FINGERPRINT_CHARACTERS;

/// Of each digest and signature in an approval; ours have 88 at most.
pub const DIGEST_BYTES: usize = 128;

/// Characters of a view's title; ours have 12.
pub const VIEW_CHARACTERS: usize = 32;
