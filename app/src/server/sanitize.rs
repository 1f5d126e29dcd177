//! Takes a command as a client sent it, which may be anybody's; gives it as the session may take it, or the line that
//! refuses it. What the session checks itself is left to it.

use loka_core::{
    model::{KernelId, SiteId},
    review::{Approval, TEXT_CHARACTERS},
    session::{
        Command, CommandError, Session,
        shared::{Author, NAME_LENGTH, Place},
    },
};

use super::{ServedDir, limits, one_line::one_line};

/// Paths become names in the served folder, whatever they were.
pub fn sanitize(
    command: Command,
    author: &Author,
    session: &Session,
    served_dir: &ServedDir,
) -> Result<Command, String> {
    if command.is_per_window() {
        return Err("every window does that for itself".to_owned());
    }
    // The session says so, too; but who may not do it learns nothing of the disk by trying.
    if author.role < command.needs() {
        let (name, role, needs) = (author.name.clone(), author.role, command.needs());
        return Err(CommandError::NotAllowed { name, role, needs }.to_string());
    }
    match &command {
        Command::OpenTrace { .. } => return Err("another trace has a session of its own: join that".to_owned()),
        Command::OpenResults { path } => return Ok(Command::OpenResults { path: inside(path, served_dir)? }),
        Command::OpenPlan { path } => return Ok(Command::OpenPlan { path: inside(path, served_dir)? }),
        Command::FindEngines if session.engines.looking => return Err("engines are looked for already".to_owned()),
        Command::SelectEngine { name } => word(name)?,
        Command::ProbeMore { max_draws, site } => {
            site_word(site)?;
            draws(*max_draws)?;
        }
        Command::ProbeSites { max_draws, sites } => {
            many(sites.len(), session.sites().len())?;
            sites.iter().try_for_each(site_word)?;
            draws(*max_draws)?;
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
        Command::Mark { .. } | Command::Comment { .. } | Command::Resolve { .. } | Command::Look { .. } => {
            said(&command, author, session)?;
        }
        Command::RequestApproval { note } => long_text("a note", note)?,
        Command::Approve { approval } => approval_fields(approval)?,
        _ => {}
    }
    Ok(command)
}

/// What people say is bounded, each and all together: it is never taken back.
fn said(command: &Command, author: &Author, session: &Session) -> Result<(), String> {
    let reviewing = &session.reviewing;
    match command {
        Command::Mark { site, of, .. } => {
            site.iter().try_for_each(site_word)?;
            fingerprint(of)?;
            let known = reviewing.review.mark_of(site.as_ref(), &author.name).is_some();
            if !known && reviewing.review.num_marks() >= limits::MARKS {
                return Err(format!("this session has the {} marks that it takes", limits::MARKS));
            }
            Ok(())
        }
        Command::Look { site, of } => {
            site_word(site)?;
            fingerprint(of)?;
            let known = reviewing.looked.contains_key(&author.name);
            if !known && reviewing.looked.len() >= limits::PEOPLE {
                return Err(format!("{} people have looked here already", limits::PEOPLE));
            }
            Ok(())
        }
        Command::Comment { site, text, .. } => {
            site.iter().try_for_each(site_word)?;
            long_text("a comment", text)?;
            let comments = &reviewing.review.comments;
            if comments.len() >= limits::COMMENTS {
                return Err(format!("this session has the {} comments that it takes", limits::COMMENTS));
            }
            let bytes: usize = comments.iter().map(|comment| comment.text.len()).sum();
            if bytes + text.len() > limits::COMMENTS_BYTES {
                return Err(format!(
                    "this session has the {} MiB of comments that it takes",
                    limits::COMMENTS_BYTES >> 20
                ));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Its signature is the session's to check.
fn approval_fields(approval: &Approval) -> Result<(), String> {
    long_text("a note", &approval.note)?;
    let Approval { digest, review_digest, name, signature, .. } = approval;
    let odd = |text: &str| text.len() > limits::DIGEST_BYTES || text.contains(char::is_control);
    if odd(digest) || odd(review_digest) || odd(signature) || name.chars().count() > NAME_LENGTH {
        return Err("no approval of anything here".to_owned());
    }
    Ok(())
}

fn fingerprint(of: &str) -> Result<(), String> {
    if of.len() > limits::FINGERPRINT_BYTES || of.contains(char::is_control) {
        return Err("no fingerprint of anything here".to_owned());
    }
    Ok(())
}

fn long_text(what: &str, text: &str) -> Result<(), String> {
    let characters = text.chars().count();
    if characters > TEXT_CHARACTERS {
        return Err(format!("{what} has at most {TEXT_CHARACTERS} characters, this one has {characters}"));
    }
    if text.contains(|character: char| character.is_control() && !matches!(character, '\n' | '\t')) {
        return Err(format!("control characters in {what}"));
    }
    Ok(())
}

/// Where somebody says that they look, as it can be told to others.
pub fn place(place: Place) -> Place {
    let site = place.site.filter(|site| site_word(site).is_ok());
    let view = one_line(&place.view, limits::VIEW_CHARACTERS);
    Place { site, view }
}

fn inside(path: &str, served_dir: &ServedDir) -> Result<String, String> {
    let found = served_dir.path(path)?;
    served_dir.name(&found).ok_or_else(|| "its name is no text".to_owned())
}

fn many(count: usize, most: usize) -> Result<(), String> {
    if count > most { Err(format!("{count} places are named, the trace has {most}")) } else { Ok(()) }
}

fn draws(count: u64) -> Result<(), String> {
    let most = limits::DRAWS;
    if (1..=most).contains(&count) { Ok(()) } else { Err(format!("a site is probed with 1 to {most} draws")) }
}

fn word(word: &str) -> Result<(), String> {
    if word.len() > limits::WORD_CHARACTERS || word.contains(char::is_control) {
        return Err("it is too long for a name, or has control characters".to_owned());
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
    if text.chars().count() > limits::REASON_CHARACTERS {
        return Err(format!("a reason has at most {} characters", limits::REASON_CHARACTERS));
    }
    if text.contains(|character: char| character.is_control() && character != '\n') {
        return Err("control characters in a reason".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use loka_core::{
        dispatch::Policy,
        model::{Gemm, Moment},
        review::{Comment, Mark, ReviewState, Role, SecretKey, Statement},
    };

    use super::*;

    fn by(role: Role) -> Author {
        Author { role, ..Author::new(1, "Anna") }
    }

    fn vetted(command: Command, role: Role, session: &Session) -> Result<Command, String> {
        let folder = tempfile::tempdir().unwrap();
        sanitize(command, &by(role), session, &ServedDir::new(folder.path()).unwrap())
    }

    fn refused(command: Command) -> String {
        let line = vetted(command, Role::Owner, &Session::default()).unwrap_err();
        assert!(!line.contains('\n'), "{line}");
        line
    }

    #[test]
    fn what_no_client_may_ask_for() {
        let (site, kernel) = (SiteId::new("s"), KernelId::new("te/current"));
        let (path, reason) = ("../r.parquet".to_owned(), String::new());
        for (command, part) in [
            (Command::ExportPlan { path: "/etc/passwd".to_owned() }, "for itself"),
            (Command::ExportTo { path: path.clone(), target: loka_core::export::Target::Te }, "for itself"),
            (Command::ExportReport { path: path.clone() }, "for itself"),
            (Command::SaveResults { path: path.clone() }, "for itself"),
            (Command::OpenTrace { path: path.clone() }, "join"),
            (Command::OpenResults { path: path.clone() }, "outside of the served folder: ../r.parquet"),
            (Command::OpenPlan { path }, "outside of the served folder"),
            (Command::ProbeMore { site: site.clone(), max_draws: u64::MAX }, "draws"),
            (Command::ProbeMore { site: site.clone(), max_draws: 0 }, "draws"),
            (Command::ProbeSites { sites: Vec::new(), max_draws: 0 }, "draws"),
            (Command::ProbeSites { sites: vec![site.clone()], max_draws: 8 }, "the trace has 0"),
            (Command::SelectEngine { name: "x".repeat(limits::WORD_CHARACTERS + 1) }, "for a name"),
            (Command::SetOverrides { at: vec![(site.clone(), Gemm::Fprop)], kernel: kernel.clone(), reason }, "0"),
            (Command::ClearOverrides { at: vec![(site.clone(), Gemm::Fprop)] }, "the trace has 0"),
            (
                Command::SetOverride { site, gemm: Gemm::Fprop, kernel, reason: "\u{1b}[31m".to_owned() },
                "control characters",
            ),
            (Command::SetPolicy { policy: Policy { name: "a\nb".to_owned(), ..Policy::paper() } }, "for a name"),
        ] {
            let line = refused(command);
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn a_file_is_named_as_it_lies_in_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("r.parquet"), "").unwrap();
        let served_dir = ServedDir::new(folder.path()).unwrap();
        let open = Command::OpenResults { path: "r.parquet".to_owned() };
        let (owner, viewer) = (by(Role::Owner), by(Role::Viewer));
        assert_eq!(sanitize(open.clone(), &owner, &Session::default(), &served_dir), Ok(open.clone()));
        assert_eq!(sanitize(Command::Undo, &owner, &Session::default(), &served_dir), Ok(Command::Undo));
        for path in ["r.parquet", "nowhere", "../r.parquet"] {
            let open = Command::OpenResults { path: path.to_owned() };
            let line = sanitize(open, &viewer, &Session::default(), &served_dir).unwrap_err();
            assert_eq!(line, "Anna is a viewer here: that takes an owner", "whatever lies there");
        }
    }

    fn comment(text: &str) -> Command {
        Command::Comment { site: None, gemm: None, reply_to: None, text: text.to_owned() }
    }

    #[test]
    fn what_people_say_is_bounded_each_and_together() {
        let look = |of: &str| Command::Look { site: SiteId::new("s"), of: of.to_owned() };
        let mark = |of: &str| Command::Mark { site: None, state: ReviewState::Agreed, of: of.to_owned() };
        let long = "ä".repeat(TEXT_CHARACTERS + 1);
        for (command, part) in [
            (comment(&long), "at most 10000 characters, this one has 10001"),
            (comment("a\u{1b}[2J"), "control characters in a comment"),
            (Command::RequestApproval { note: long.clone() }, "a note has at most"),
            (Command::RequestApproval { note: "\u{7f}".to_owned() }, "control characters in a note"),
            (mark(&"x".repeat(limits::FINGERPRINT_BYTES + 1)), "no fingerprint"),
            (mark("a\nb"), "no fingerprint"),
            (look(&"x".repeat(limits::FINGERPRINT_BYTES + 1)), "no fingerprint"),
            (Command::Look { site: SiteId::new(&"x".repeat(2000)), of: String::new() }, "for a name"),
        ] {
            let line = refused(command);
            assert!(line.contains(part), "{line}");
        }
        let mut session = Session::default();
        assert!(vetted(comment("a\n\tb"), Role::Reviewer, &session).is_ok());
        let said = |id: usize, text: String| Comment {
            id: id as u64,
            site: None,
            gemm: None,
            reply_to: None,
            by: "Bo".to_owned(),
            at: Moment(0),
            text,
            resolved_by: None,
        };
        session.reviewing.review.comments = (0..limits::COMMENTS).map(|id| said(id, String::new())).collect();
        assert!(vetted(comment("x"), Role::Reviewer, &session).unwrap_err().contains("20000 comments"));
        let full = "x".repeat(limits::COMMENTS_BYTES);
        session.reviewing.review.comments = vec![said(1, full)];
        assert!(vetted(comment("x"), Role::Reviewer, &session).unwrap_err().contains("32 MiB"));
        for at in 0..limits::MARKS {
            let (site, by) = (Some(SiteId::new(&at.to_string())), "Bo".to_owned());
            let (state, of) = (ReviewState::Agreed, String::new());
            session.reviewing.review.set_mark(Mark { site, by, at: Moment(0), state, of });
        }
        assert!(vetted(mark(""), Role::Reviewer, &session).unwrap_err().contains("200000 marks"));
        let of_bo = Command::Mark { site: Some(SiteId::new("7")), state: ReviewState::Open, of: String::new() };
        let bo = Author::new(2, "Bo");
        let folder = tempfile::tempdir().unwrap();
        assert!(
            sanitize(of_bo, &bo, &session, &ServedDir::new(folder.path()).unwrap()).is_ok(),
            "one in place of another"
        );
        for at in 0..limits::PEOPLE {
            session.reviewing.looked.insert(at.to_string(), Default::default());
        }
        assert!(vetted(look(""), Role::Viewer, &session).unwrap_err().contains("1000 people"));
    }

    #[test]
    fn an_approval_of_odd_fields_is_refused_before_its_signature() {
        let key = SecretKey::new("Anna", &[3; 32]).unwrap();
        let (digest, name, note) = ("sha256:aa".to_owned(), "Anna".to_owned(), String::new());
        let statement = Statement {
            digest: digest.clone(),
            review_digest: digest,
            name,
            role: Role::Approver,
            at: Moment(0),
            note,
        };
        let plain = Approval::sign(statement, &key);
        let of = |approval: &Approval| Command::Approve { approval: Box::new(approval.clone()) };
        assert!(vetted(of(&plain), Role::Approver, &Session::default()).is_ok());
        assert!(vetted(of(&plain), Role::Reviewer, &Session::default()).is_err());
        let long = || "x".repeat(1 << 20);
        for odd in [
            Approval { name: long(), ..plain.clone() },
            Approval { note: long(), ..plain.clone() },
            Approval { digest: long(), ..plain.clone() },
            Approval { review_digest: "a\u{1b}".to_owned(), ..plain.clone() },
            Approval { signature: long(), ..plain.clone() },
        ] {
            assert!(vetted(of(&odd), Role::Approver, &Session::default()).is_err());
        }
    }

    #[test]
    fn a_place_is_told_as_one_short_line() {
        let told = place(Place { site: Some(SiteId::new("net.0")), view: "\u{202e}Pl\nan\u{0} ".to_owned() });
        assert_eq!(told, Place { site: Some(SiteId::new("net.0")), view: "Plan".to_owned() });
        let odd = place(Place { site: Some(SiteId::new(&"x".repeat(1 << 20))), view: "x".repeat(1 << 20) });
        assert_eq!((odd.site, odd.view.len()), (None, limits::VIEW_CHARACTERS));
    }
}
