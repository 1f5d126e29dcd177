//! A Python process and its three pipes. Takes a line, gives the next line or why there is none; a
//! thread a pipe, so that nothing it does or leaves undone blocks the caller past a timeout.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{ProcessError, one_line, program};

/// A reply is some tens of kilobytes; a library that prints without end must not fill the memory.
const MAX_LINE: u64 = 16 << 20;
const MAX_STDERR_LINE: u64 = 64 << 10;
const LAST_LINE_SHOWN: usize = 240;
/// How long a process that closed its pipes has to end, and stderr to be read to its end.
const GRACE: Duration = Duration::from_millis(500);

/// A running process. Killed on drop.
#[derive(Debug)]
pub struct Process {
    child: Option<Child>,
    /// `None`: closed, which asks it to end.
    requests: Option<Sender<Vec<u8>>>,
    lines: Receiver<PythonLine>,
    last_stderr: Arc<Mutex<Option<String>>>,
    stderr_reader: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum PythonLine {
    Whole(Vec<u8>),
    TooLong(Vec<u8>),
    /// Closed, in the middle of a line or not.
    End,
}

impl Process {
    /// Starts `python arguments` in `root`, which is put first on Python's path.
    pub fn spawn(python: &Path, arguments: &[OsString], root: &Path) -> Result<Self, ProcessError> {
        let failed = |error: &io::Error| {
            let python = python.display().to_string();
            match error.kind() {
                io::ErrorKind::NotFound => ProcessError::NotFound { python },
                _ => ProcessError::Start { cause: error.to_string(), python },
            }
        };
        let mut child = Command::new(program(python))
            .args(arguments)
            .current_dir(root)
            .env("PYTHONPATH", python_path(root))
            .env("PYTHONUNBUFFERED", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        let (requests, outbox) = channel();
        // Two lines at most wait here: one that nobody asked for is rubbish anyway.
        let (inbox, lines) = sync_channel(2);
        let last_stderr = Arc::new(Mutex::new(None));
        if let Some(stdin) = child.stdin.take() {
            thread::spawn(move || write_requests(stdin, &outbox));
        }
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || read_lines(stdout, &inbox));
        }
        let stderr_reader = child.stderr.take().map(|stderr| {
            let last = Arc::clone(&last_stderr);
            thread::spawn(move || keep_last_line(stderr, &last))
        });
        Ok(Self { child: Some(child), requests: Some(requests), lines, last_stderr, stderr_reader })
    }

    /// Sends a line and gives the next one that comes back.
    pub fn ask(&mut self, line: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, ProcessError> {
        if let Ok(unasked) = self.lines.try_recv() {
            return self.take(unasked).and_then(|line| Err(ProcessError::Rubbish(line)));
        }
        self.send(line);
        self.next(timeout)?.ok_or(ProcessError::TimedOut)
    }

    /// Sends a line that nothing need answer.
    pub fn send(&self, line: Vec<u8>) {
        // A process that is gone shows as the end of its output, with its status.
        drop(self.requests.as_ref().map(|requests| requests.send(line)));
    }

    /// The next line; `None`: none came within `timeout`.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, ProcessError> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => self.take(line).map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.died()),
        }
    }

    /// Closes its input, which tells it to end, and waits for that; false: it goes on.
    pub fn close(&mut self, grace: Duration) -> bool {
        self.requests = None;
        self.child.as_mut().is_none_or(|child| wait(child, grace).is_some())
    }

    /// Of the process, while it is held.
    #[cfg(test)]
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    fn take(&mut self, line: PythonLine) -> Result<Vec<u8>, ProcessError> {
        match line {
            PythonLine::Whole(line) => Ok(line),
            PythonLine::TooLong(start) => Err(ProcessError::Rubbish(start)),
            PythonLine::End => Err(self.died()),
        }
    }

    /// It closed its output: how it ended and what it said last.
    fn died(&mut self) -> ProcessError {
        let status = match self.child.as_mut() {
            None => "already killed".to_owned(),
            Some(child) => match wait(child, GRACE) {
                Some(status) => status,
                None => "closed its output and went on; killed".to_owned(),
            },
        };
        // Its last words may still be in the pipe.
        let until = Instant::now() + GRACE;
        while self.stderr_reader.as_ref().is_some_and(|reader| !reader.is_finished()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
        let last_line = self.last_stderr.lock().unwrap_or_else(PoisonError::into_inner).take();
        ProcessError::Died { status, last_line }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // Fails only when it has ended.
        drop(child.kill());
        if wait(&mut child, GRACE).is_none() {
            // In the driver's hands: not even a kill ends it now. Waited for elsewhere, not here.
            thread::spawn(move || drop(child.wait()));
        }
    }
}

/// The status once the process has ended; `None` when it has not within `limit`.
fn wait(child: &mut Child, limit: Duration) -> Option<String> {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.to_string()),
            Err(error) => return Some(error.to_string()),
            Ok(None) if Instant::now() >= until => return None,
            Ok(None) => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn python_path(root: &Path) -> OsString {
    let theirs = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let all = std::iter::once(root.to_path_buf()).chain(std::env::split_paths(&theirs));
    // Not joinable: the folder has a separator in its name. `-m` looks in the current folder too.
    std::env::join_paths(all.filter(|path| !path.as_os_str().is_empty())).unwrap_or(theirs)
}

fn write_requests(mut stdin: ChildStdin, outbox: &Receiver<Vec<u8>>) {
    while let Ok(line) = outbox.recv() {
        if stdin.write_all(&line).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

fn read_lines(stdout: impl Read, inbox: &SyncSender<PythonLine>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line);
        let next = match read {
            Ok(_) if line.ends_with(b"\n") => PythonLine::Whole(line),
            Ok(count) if count as u64 == MAX_LINE => PythonLine::TooLong(line),
            _ => PythonLine::End,
        };
        let is_last = !matches!(next, PythonLine::Whole(_));
        if inbox.send(next).is_err() || is_last {
            return;
        }
    }
}

fn keep_last_line(stderr: impl Read, last: &Mutex<Option<String>>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut reader).take(MAX_STDERR_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = one_line(&String::from_utf8_lossy(&line), LAST_LINE_SHOWN);
                if !text.is_empty() {
                    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
                }
            }
        }
    }
}
