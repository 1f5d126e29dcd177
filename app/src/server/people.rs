//! Who may come in, by name and role: takes the text of a list of people, gives who a token or a cookie stands for, and
//! the text again. No token is in it, see [`TokenDigest`].

use std::collections::BTreeSet;

use loka_core::{review::Role, session::shared::NAME_LENGTH};
use serde::{Deserialize, Serialize};

use super::{limits, one_line, token::TokenDigest};

const FORMAT: &str = "loka-users";
const VERSION: u64 = 1;
/// The program's own name in logs and journals.
const PROGRAM: &str = "loka";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    pub name: String,
    pub role: Role,
    token: TokenDigest,
}

/// By name; no name and no token twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct People {
    users: Vec<User>,
}

/// Enough to tell what a file is.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u64,
    people: Vec<User>,
}

impl People {
    pub fn from_json(text: &str) -> Result<Self, String> {
        let broken = |error: serde_json::Error| format!("not a list of people ({error})");
        let head: Head = serde_json::from_str(text).map_err(broken)?;
        if head.format != FORMAT {
            return Err(format!("not a list of people (its format is not {FORMAT})"));
        }
        if head.version != VERSION {
            return Err(format!("a list of people of version {}, this LoKA knows {VERSION}", head.version));
        }
        let document: Document = serde_json::from_str(text).map_err(broken)?;
        Self::of(document.people)
    }

    pub fn to_json(&self) -> String {
        let document = Document { format: FORMAT.to_owned(), version: VERSION, people: self.users.clone() };
        // Plain data has JSON.
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }

    fn of(mut users: Vec<User>) -> Result<Self, String> {
        if users.len() > limits::PEOPLE {
            return Err(format!("more than {} people", limits::PEOPLE));
        }
        let (mut names, mut tokens) = (BTreeSet::new(), BTreeSet::new());
        for user in &users {
            is_name(&user.name)?;
            if !names.insert(user.name.to_lowercase()) {
                return Err(format!("{} is in it twice", user.name));
            }
            if !tokens.insert(user.token) {
                return Err(format!("{} has the token of somebody else", user.name));
            }
        }
        users.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { users })
    }

    pub fn users(&self) -> &[User] {
        &self.users
    }

    /// Whose token that is. Looks at all of them, so that the time says nothing.
    pub fn of_token(&self, token: &TokenDigest) -> Option<&User> {
        self.users.iter().fold(None, |found, user| if user.token.is(token) { Some(user) } else { found })
    }

    pub fn add(&mut self, name: &str, role: Role, token: TokenDigest) -> Result<(), String> {
        let mut users = self.users.clone();
        users.push(User { name: name.to_owned(), role, token });
        *self = Self::of(users)?;
        Ok(())
    }

    pub fn remove(&mut self, name: &str) -> Result<(), String> {
        let before = self.users.len();
        self.users.retain(|user| user.name != name);
        if self.users.len() < before { Ok(()) } else { Err(unknown(name)) }
    }

    pub fn set_role(&mut self, name: &str, role: Role) -> Result<(), String> {
        let user = self.users.iter_mut().find(|user| user.name == name);
        user.ok_or_else(|| unknown(name))?.role = role;
        Ok(())
    }
}

fn unknown(name: &str) -> String {
    format!("nobody in it is called '{name}'")
}

/// As it can be shown, and nobody's else.
fn is_name(name: &str) -> Result<(), String> {
    if name.is_empty() || one_line::name(name, NAME_LENGTH) != name {
        let shown: String = name.escape_debug().take(2 * NAME_LENGTH).collect();
        return Err(format!("'{shown}' is no name (one line of up to {NAME_LENGTH} characters)"));
    }
    if name.to_lowercase() == PROGRAM {
        return Err(format!("'{name}' is what the program calls itself"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Token;

    fn digest() -> TokenDigest {
        Token::random().unwrap().digest()
    }

    #[test]
    fn reads_what_it_wrote_and_knows_whose_a_token_is() {
        let (anna, bo) = (Token::random().unwrap(), Token::random().unwrap());
        let mut people = People::default();
        people.add("Bo Ek", Role::Owner, bo.digest()).unwrap();
        people.add("Anna", Role::Reviewer, anna.digest()).unwrap();
        let text = people.to_json();
        assert!(!text.contains(anna.text()) && !text.contains(anna.cookie()), "{text}");
        let again = People::from_json(&text).unwrap();
        assert_eq!(again, people);
        let of = |token: &TokenDigest| again.of_token(token).map(|user| (user.name.as_str(), user.role));
        assert_eq!(of(&TokenDigest::of_link(anna.text())), Some(("Anna", Role::Reviewer)));
        assert_eq!(of(&TokenDigest::of_cookie(bo.cookie())), Some(("Bo Ek", Role::Owner)));
        assert_eq!(of(&TokenDigest::of_link(anna.cookie())), None);
    }

    #[test]
    fn people_come_change_and_go() {
        let mut people = People::default();
        let token = digest();
        people.add("Anna", Role::Viewer, token).unwrap();
        assert_eq!(people.add("anna", Role::Owner, digest()), Err("anna is in it twice".to_owned()));
        assert_eq!(people.add("Bo", Role::Owner, token), Err("Bo has the token of somebody else".to_owned()));
        for name in ["", " Anna", "a\nb", "a\u{202e}b", "LoKA", &"x".repeat(NAME_LENGTH + 1)] {
            let line = people.add(name, Role::Owner, digest()).unwrap_err();
            assert!(line.contains("name") || line.contains("calls itself"), "{line}");
            assert!(!line.contains('\n'), "{line}");
        }
        assert_eq!(people.users().len(), 1, "what was refused changed nothing");
        people.set_role("Anna", Role::Approver).unwrap();
        assert_eq!(people.of_token(&token).unwrap().role, Role::Approver);
        assert_eq!(people.set_role("Bo", Role::Owner), Err("nobody in it is called 'Bo'".to_owned()));
        people.remove("Anna").unwrap();
        assert_eq!(people.remove("Anna"), Err("nobody in it is called 'Anna'".to_owned()));
        assert!(people.of_token(&token).is_none());
    }

    #[test]
    fn a_broken_list_is_a_line() {
        let user =
            |name: &str, token: &str| format!("{{\"name\":\"{name}\",\"role\":\"owner\",\"token\":\"{token}\"}}");
        let list = |version: u64, people: &str| {
            format!("{{\"format\":\"loka-users\",\"version\":{version},\"people\":[{people}]}}")
        };
        let (a, b) = (digest().to_string(), digest().to_string());
        assert_eq!(People::from_json(&list(1, &user("Anna", &a))).unwrap().users().len(), 1);
        let many: Vec<String> = (0..=limits::PEOPLE).map(|at| user(&format!("U{at}"), &digest().to_string())).collect();
        for (text, part) in [
            (String::new(), "not a list of people"),
            ("[]".to_owned(), "not a list of people"),
            (list(1, &user("Anna", &a)).replace("loka-users", "loka-keys"), "its format is not loka-users"),
            (list(2, ""), "of version 2, this LoKA knows 1"),
            (list(1, &[user("Anna", &a), user("Anna", &b)].join(",")), "Anna is in it twice"),
            (list(1, &[user("Anna", &a), user("Bo", &a)].join(",")), "the token of somebody else"),
            (list(1, &user("Anna", "secret")), "not a list of people"),
            (list(1, &user("Anna", &a).replace("owner", "king")), "not a list of people"),
            (list(1, &user("Anna", &a)).replace("role", "rule"), "not a list of people"),
            (list(1, &many.join(",")), "more than"),
        ] {
            let line = People::from_json(&text).unwrap_err();
            assert!(line.contains(part) && !line.contains('\n'), "{line}");
        }
    }
}
