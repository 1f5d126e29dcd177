//! A window driven by the program that started it: takes lines on stdin, gives a line of JSON on stdout for each `look`.
//! The window closes when stdin does.

use std::{io::Write as _, thread};

use egui::{Context, ViewportCommand};

use crate::driving::{Drive, Look};

pub fn drive(ctx: &Context) -> Drive {
    let drive = Drive::default();
    drive.install(ctx, |look| tell(&look));
    let (asked, ctx) = (drive.clone(), ctx.clone());
    let listen = move || {
        for line in std::io::stdin().lines() {
            match line.as_deref() {
                Ok("look") => asked.ask(),
                Ok(_) => {}
                Err(_) => break,
            }
            ctx.request_repaint();
        }
        ctx.send_viewport_cmd(ViewportCommand::Close);
        ctx.request_repaint();
    };
    // Without the thread nothing is answered, which whoever asks will notice.
    drop(thread::Builder::new().name("loka-drive".to_owned()).spawn(listen));
    drive
}

/// Whoever asked may be gone by now.
fn tell(look: &Look) {
    let Ok(line) = serde_json::to_string(look) else { return };
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}
