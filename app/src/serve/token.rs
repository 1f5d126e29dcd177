//! The secret of a server that others can reach: takes randomness or a person's own token, gives what the link
//! and the cookie hold, and tells whether an offered one is right, in a time that says nothing.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::limits;

/// What a link carries.
#[derive(Clone)]
pub struct Token {
    text: String,
    /// What the cookie carries: made of the token, so that it survives a restart with the same one, and a stolen
    /// cookie is no link.
    cookie: String,
}

impl Token {
    /// 32 random bytes.
    pub fn random() -> Result<Self, String> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| format!("no randomness for a token: {error}"))?;
        Ok(Self::of(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// A person's own.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._~".contains(letter);
        if limits::TOKEN_LETTERS.contains(&text.len()) && text.chars().all(plain) {
            return Ok(Self::of(text.to_owned()));
        }
        let (least, most) = (limits::TOKEN_LETTERS.start(), limits::TOKEN_LETTERS.end());
        Err(format!("a token has {least} to {most} characters of A-Z a-z 0-9 - . _ ~"))
    }

    fn of(text: String) -> Self {
        let mut hash = Sha256::new_with_prefix(b"loka serve cookie\0");
        hash.update(&text);
        let cookie = URL_SAFE_NO_PAD.encode(hash.finalize());
        Self { text, cookie }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    pub fn is(&self, offered: &str) -> bool {
        same(&self.text, offered)
    }

    pub fn is_cookie(&self, offered: &str) -> bool {
        same(&self.cookie, offered)
    }
}

/// Digests have one length, whatever was offered.
fn same(ours: &str, offered: &str) -> bool {
    Sha256::digest(ours).as_slice().ct_eq(Sha256::digest(offered).as_slice()).into()
}

/// Never in a log.
impl std::fmt::Debug for Token {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_tokens_are_long_and_differ() {
        let (a, b) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(a.text().len(), 43);
        assert_ne!(a.text(), b.text());
        assert!(a.is(a.text()) && !a.is(b.text()) && !a.is(""));
        assert!(a.is_cookie(a.cookie()) && !a.is_cookie(a.text()) && !a.is(a.cookie()), "one is not the other");
        assert!(Token::parse(a.text()).is_ok_and(|again| again.is_cookie(a.cookie())), "a restart keeps cookies");
        assert!(!format!("{a:?}").contains(a.text()));
    }

    #[test]
    fn short_and_odd_tokens_are_refused() {
        for text in ["", "short", "sixteen letters!", "sixteen\nletters.", &"a".repeat(257)] {
            assert!(Token::parse(text).unwrap_err().starts_with("a token has 16 to 256"), "{text}");
        }
    }
}
