//! Takes a command as a client sent it, which may be anybody's; gives it as the session may take it, or the line that
//! refuses it. What the session checks itself is left to it.

use loka_core::{
    model::{KernelId, SiteId},
    session::{Command, Session},
};

use super::{Jail, limits};

/// Paths become names in the served folder, whatever they were.
pub fn vet(command: Command, session: &Session, jail: &Jail) -> Result<Command, String> {
    if command.is_private() {
        return Err("every window does that for itself".to_owned());
    }
    match &command {
        Command::OpenTrace { .. } => return Err("another trace has a session of its own: join that".to_owned()),
        Command::OpenResults { path } => return Ok(Command::OpenResults { path: inside(path, jail)? }),
        Command::OpenPlan { path } => return Ok(Command::OpenPlan { path: inside(path, jail)? }),
        Command::FindEngines if session.engines.looking => return Err("engines are looked for already".to_owned()),
        Command::SelectEngine { name } => word(name)?,
        Command::ProbeMore { max_draws, site } => {
            site_word(site)?;
            if !(1..=limits::DRAWS).contains(max_draws) {
                return Err(format!("a site is probed with 1 to {} draws", limits::DRAWS));
            }
        }
        Command::SetMod { sites, .. } => {
            many(sites.len(), session.sites().len())?;
            sites.iter().try_for_each(site_word)?;
        }
        Command::SetPolicy { policy } => {
            word(&policy.name)?;
            kernel_word(&policy.baseline)?;
        }
        Command::SetOverride { site, kernel, reason, .. } => {
            site_word(site)?;
            kernel_word(kernel)?;
            text(reason)?;
        }
        Command::SetOverrides { at, kernel, reason } => {
            many(at.len(), 3 * session.sites().len())?;
            at.iter().try_for_each(|(site, _)| site_word(site))?;
            kernel_word(kernel)?;
            text(reason)?;
        }
        Command::ClearOverride { site, .. } => site_word(site)?,
        Command::ClearOverrides { at } => {
            many(at.len(), 3 * session.sites().len())?;
            at.iter().try_for_each(|(site, _)| site_word(site))?;
        }
        _ => {}
    }
    Ok(command)
}

fn inside(path: &str, jail: &Jail) -> Result<String, String> {
    let found = jail.path(path)?;
    jail.name(&found).ok_or_else(|| "its name is no text".to_owned())
}

fn many(count: usize, most: usize) -> Result<(), String> {
    if count > most { Err(format!("{count} places are named, the trace has {most}")) } else { Ok(()) }
}

fn word(word: &str) -> Result<(), String> {
    if word.len() > limits::WORD_LETTERS || word.contains(char::is_control) {
        return Err("no name of anything here".to_owned());
    }
    Ok(())
}

fn site_word(site: &SiteId) -> Result<(), String> {
    word(site.as_str())
}

fn kernel_word(kernel: &KernelId) -> Result<(), String> {
    word(kernel.as_str())
}

fn text(text: &str) -> Result<(), String> {
    if text.chars().count() > limits::REASON_LETTERS {
        return Err(format!("a reason has at most {} letters", limits::REASON_LETTERS));
    }
    if text.contains(|letter: char| letter.is_control() && letter != '\n') {
        return Err("control characters in a reason".to_owned());
    }
    Ok(())
}

/// A person's name as it is shown to others: bounded, one line, and nothing that turns the line around.
pub fn name(name: &str, most: usize) -> String {
    let turns = |letter| matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    let odd = |letter: char| letter.is_control() || turns(letter);
    let plain: String = name.chars().filter(|letter| !odd(*letter)).take(most).collect();
    let plain = plain.trim();
    if plain.is_empty() { "Guest".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use loka_core::{dispatch::Policy, model::Gemm};

    use super::*;

    fn refused(command: Command) -> String {
        let folder = tempfile::tempdir().unwrap();
        let line = vet(command, &Session::default(), &Jail::new(folder.path()).unwrap()).unwrap_err();
        assert!(!line.contains('\n'), "{line}");
        line
    }

    #[test]
    fn what_no_client_may_ask_for() {
        let (site, kernel) = (SiteId::new("s"), KernelId::new("te/current"));
        let (path, reason) = ("../r.parquet".to_owned(), String::new());
        for (command, part) in [
            (Command::ExportPlan { path: "/etc/passwd".to_owned() }, "for itself"),
            (Command::SaveResults { path: path.clone() }, "for itself"),
            (Command::OpenTrace { path: path.clone() }, "join"),
            (Command::OpenResults { path: path.clone() }, "outside of the served folder: ../r.parquet"),
            (Command::OpenPlan { path }, "outside of the served folder"),
            (Command::ProbeMore { site: site.clone(), max_draws: u64::MAX }, "draws"),
            (Command::ProbeMore { site: site.clone(), max_draws: 0 }, "draws"),
            (Command::SelectEngine { name: "x".repeat(limits::WORD_LETTERS + 1) }, "no name"),
            (Command::SetOverrides { at: vec![(site.clone(), Gemm::Fprop)], kernel: kernel.clone(), reason }, "0"),
            (Command::ClearOverrides { at: vec![(site.clone(), Gemm::Fprop)] }, "the trace has 0"),
            (
                Command::SetOverride { site, gemm: Gemm::Fprop, kernel, reason: "\u{1b}[31m".to_owned() },
                "control characters",
            ),
            (Command::SetPolicy { policy: Policy { name: "a\nb".to_owned(), ..Policy::paper() } }, "no name"),
        ] {
            let line = refused(command);
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn a_file_is_named_as_it_lies_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("r.parquet"), "").unwrap();
        let jail = Jail::new(folder.path()).unwrap();
        let open = Command::OpenResults { path: "r.parquet".to_owned() };
        assert_eq!(vet(open.clone(), &Session::default(), &jail), Ok(open));
        assert_eq!(vet(Command::Undo, &Session::default(), &jail), Ok(Command::Undo));
    }

    #[test]
    fn names_are_shown_as_one_line() {
        assert_eq!(name("  Anna\u{202e}\n\u{0}  ", 64), "Anna");
        assert_eq!(name("\u{200b}\u{7}", 64), "Guest");
        assert_eq!(name(&"ä".repeat(100), 64).chars().count(), 64);
    }
}
