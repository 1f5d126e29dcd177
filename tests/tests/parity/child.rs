//! A program that answers lines on stdin by lines on stdout; ended with whoever holds it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// For one line: a browser's start among others on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// For a program to end by itself.
const GENTLY: Duration = Duration::from_secs(10);

pub struct Program {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// It needs no killing: it ends when its stdin does.
    gentle: bool,
    /// What it said on stderr.
    said: Option<JoinHandle<String>>,
}

impl Program {
    /// An error is that it is not there.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{error}: {name}"))?;
        let (stdin, stdout, mut stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout.unwrap()).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let said = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Ends with the program.
            drop(stderr.as_mut().unwrap().read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        Ok(Self { name, child, stdin, lines, gentle: false, said: Some(said) })
    }

    /// It ends, and tidies up, when nobody asks any longer.
    pub fn ending_with_stdin(mut self) -> Self {
        self.gentle = true;
        self
    }

    pub fn line(&mut self) -> String {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => line,
            Err(error) => {
                let said = self.end();
                panic!("{} answered nothing ({error}); it said:\n{said}", self.name)
            }
        }
    }

    pub fn ask(&mut self, question: &str) -> String {
        // Gone: told when no answer comes.
        drop(writeln!(self.stdin.as_mut().unwrap(), "{question}"));
        self.line()
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has it ended, killed where that must be, and gives what it said on stderr.
    pub fn end(&mut self) -> String {
        self.stdin = None;
        let start = Instant::now();
        while self.gentle && start.elapsed() < GENTLY && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(self.child.kill());
        drop(self.child.wait());
        self.said.take().and_then(|said| said.join().ok()).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}
