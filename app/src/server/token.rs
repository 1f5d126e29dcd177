//! The secret of a server that others can reach: takes randomness or a person's own token, gives what the link
//! and the cookie hold, and tells whether an offered one is right, in a time that says nothing.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
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
        let plain = |character: char| character.is_ascii_alphanumeric() || "-._~".contains(character);
        if limits::TOKEN_CHARACTERS.contains(&text.len()) && text.chars().all(plain) {
            return Ok(Self::of(text.to_owned()));
        }
        let (least, most) = (limits::TOKEN_CHARACTERS.start(), limits::TOKEN_CHARACTERS.end());
        Err(format!("a token has {least} to {most} characters of A-Z a-z 0-9 - . _ ~"))
    }

    fn of(text: String) -> Self {
        let cookie = cookie_of(&text);
        Self { text, cookie }
    }

    /// What a file may hold of it.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::of_cookie(&self.cookie)
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

/// What the cookie of a token carries.
pub fn cookie_of(token: &str) -> String {
    let mut hash = Sha256::new_with_prefix(b"loka serve cookie\0");
    hash.update(token);
    URL_SAFE_NO_PAD.encode(hash.finalize())
}

/// What is kept of a person's token: SHA-256 of its cookie, which is made of it by SHA-256. Both can be told to be right
/// by it, and neither can be made of it. Tokens are 256 random bits: nobody guesses them, however fast, so that a slow
/// hash, as words that people think of need it, would gain nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    const PREFIX: &str = "sha256:";

    pub fn of_link(token: &str) -> Self {
        Self::of_cookie(&cookie_of(token))
    }

    pub fn of_cookie(cookie: &str) -> Self {
        Self(Sha256::digest(cookie).into())
    }

    /// In a time that says nothing of either.
    pub fn is(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl std::fmt::Display for TokenDigest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(Self::PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl std::fmt::Debug for TokenDigest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("TokenDigest(..)")
    }
}

impl std::str::FromStr for TokenDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_prefix(Self::PREFIX).filter(|digits| digits.len() == 64);
        let byte = |pair: &[u8]| {
            let digit = |character: u8| char::from(character).to_digit(16).filter(|_| !character.is_ascii_uppercase());
            u8::try_from(16 * digit(pair[0])? + digit(pair[1])?).ok()
        };
        let bytes: Option<Vec<u8>> = digits.and_then(|digits| digits.as_bytes().chunks(2).map(byte).collect());
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| format!("no {}… of a token", Self::PREFIX))
    }
}

impl Serialize for TokenDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TokenDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
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
    fn a_digest_knows_the_token_and_its_cookie_and_tells_neither() {
        let (ours, other) = (Token::random().unwrap(), Token::random().unwrap());
        let kept = ours.digest();
        assert!(kept.is(&TokenDigest::of_link(ours.text())) && kept.is(&TokenDigest::of_cookie(ours.cookie())));
        assert!(!kept.is(&other.digest()) && !kept.is(&TokenDigest::of_link(ours.cookie())));
        let text = kept.to_string();
        assert!(!text.contains(ours.text()) && !text.contains(ours.cookie()));
        assert_eq!(text.parse(), Ok(kept));
        for wrong in [
            "",
            "sha256:",
            &text[1..],
            &text[..70],
            &text.to_uppercase(),
            &text.replace("sha256", "sha1"),
            &format!("{text}0"),
            &format!("sha256:{}", "é".repeat(32)),
            &format!("sha256:{}", "+1".repeat(32)),
        ] {
            assert!(wrong.parse::<TokenDigest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn short_and_odd_tokens_are_refused() {
        for text in ["", "short", "sixteen letters!", "sixteen\nletters.", &"a".repeat(257)] {
            assert!(Token::parse(text).unwrap_err().starts_with("a token has 16 to 256"), "{text}");
        }
    }
}
