//! Keys to sign with, and lists of whose they are: takes and gives the text of their files. Where these lie, and who may
//! read them, is the caller's.

use std::{collections::BTreeSet, fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Role;
use crate::model::visible_within;

const PREFIX: &str = "ed25519:";
const SECRET_FORMAT: &str = "loka-key";
const RING_FORMAT: &str = "loka-keys";
const VERSION: u64 = 1;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("not a key: {0}")]
    NotAKey(String),
    #[error("not a list of keys: {0}")]
    NotARing(String),
}

/// `ed25519:` and Base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Of what was signed, by this key and no other.
    pub fn verifies(&self, bytes: &[u8], signature: &str) -> bool {
        let Some(signature) = decoded::<64>(signature) else { return false };
        // Strict: one message has one signature of one key, and no key is weak.
        self.0.verify_strict(bytes, &Signature::from_bytes(&signature)).is_ok()
    }
}

fn decoded<const N: usize>(text: &str) -> Option<[u8; N]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD.encode(self.0.as_bytes()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = text.strip_prefix(PREFIX).and_then(decoded::<32>);
        let key = bytes.and_then(|bytes| VerifyingKey::from_bytes(&bytes).ok()).filter(|key| !key.is_weak());
        let not_one = || format!("'{}' is not {PREFIX} and 32 bytes in Base64", visible_within(text, 80));
        key.map(Self).ok_or_else(|| KeyError::NotAKey(not_one()))
    }
}

impl PartialOrd for PublicKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PublicKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.as_bytes().cmp(other.0.as_bytes())
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.chars().count()) && !name.contains(char::is_control) && name.trim() == name
}

/// A person's own; wiped from memory when dropped.
#[derive(Clone)]
pub struct SecretKey {
    pub name: String,
    key: SigningKey,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretFile {
    format: String,
    version: u64,
    name: String,
    public: PublicKey,
    secret: String,
}

impl SecretKey {
    /// `seed`: 32 bytes from the system's random source.
    pub fn new(name: &str, seed: &[u8; 32]) -> Result<Self, KeyError> {
        let name = name.trim();
        if !is_name(name) {
            return Err(KeyError::NotAKey("a key's name has 1 to 64 characters in one line".to_owned()));
        }
        Ok(Self { name: name.to_owned(), key: SigningKey::from_bytes(seed) })
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(self.key.verifying_key())
    }

    /// Base64.
    pub fn sign(&self, bytes: &[u8]) -> String {
        STANDARD.encode(self.key.sign(bytes).to_bytes())
    }

    /// The file of it: nobody but its owner may read that.
    pub fn to_json(&self) -> String {
        let file = SecretFile {
            format: SECRET_FORMAT.to_owned(),
            version: VERSION,
            name: self.name.clone(),
            public: self.public(),
            secret: STANDARD.encode(self.key.to_bytes()),
        };
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }

    pub fn from_json(text: &str) -> Result<Self, KeyError> {
        // The parser's own line could hold a part of the secret.
        let file: SecretFile = serde_json::from_str(text)
            .map_err(|error| KeyError::NotAKey(format!("line {}, column {}", error.line(), error.column())))?;
        if file.format != SECRET_FORMAT || file.version != VERSION {
            return Err(KeyError::NotAKey(format!("format {} version {}", file.format, file.version)));
        }
        let seed = decoded::<32>(&file.secret).ok_or_else(|| KeyError::NotAKey("the secret is cut".to_owned()))?;
        let key = Self::new(&file.name, &seed)?;
        if key.public() == file.public {
            Ok(key)
        } else {
            Err(KeyError::NotAKey("its public half is another key's".to_owned()))
        }
    }
}

/// Never in a log.
impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey({}, ..)", self.name)
    }
}

/// Whose a key is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keyed {
    pub name: String,
    pub key: PublicKey,
    pub role: Role,
}

/// Who may sign, as a team keeps it beside its models: public keys, nothing secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Keyed>", into = "Vec<Keyed>")]
pub struct KeyRing {
    people: Vec<Keyed>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RingFile {
    format: String,
    version: u64,
    people: Vec<Keyed>,
}

impl From<KeyRing> for Vec<Keyed> {
    fn from(ring: KeyRing) -> Self {
        ring.people
    }
}

impl TryFrom<Vec<Keyed>> for KeyRing {
    type Error = KeyError;

    fn try_from(people: Vec<Keyed>) -> Result<Self, KeyError> {
        Self::new(people)
    }
}

impl KeyRing {
    /// No two people share a key or a name.
    pub fn new(people: Vec<Keyed>) -> Result<Self, KeyError> {
        let (mut keys, mut names) = (BTreeSet::new(), BTreeSet::new());
        for person in &people {
            if !is_name(&person.name) {
                return Err(KeyError::NotARing(format!(
                    "{:?} is no name of 1 to 64 characters in one line",
                    person.name
                )));
            }
            if !keys.insert(person.key) || !names.insert(&person.name) {
                return Err(KeyError::NotARing(format!("'{}' is in it twice, by name or by key", person.name)));
            }
        }
        Ok(Self { people })
    }

    pub fn people(&self) -> &[Keyed] {
        &self.people
    }

    pub fn of(&self, key: &PublicKey) -> Option<&Keyed> {
        self.people.iter().find(|person| person.key == *key)
    }

    pub fn from_json(text: &str) -> Result<Self, KeyError> {
        let file: RingFile = serde_json::from_str(text).map_err(|error| KeyError::NotARing(error.to_string()))?;
        if file.format != RING_FORMAT || file.version != VERSION {
            return Err(KeyError::NotARing(format!("format {} version {}", file.format, file.version)));
        }
        Self::new(file.people)
    }

    pub fn to_json(&self) -> String {
        let file = RingFile { format: RING_FORMAT.to_owned(), version: VERSION, people: self.people.clone() };
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, 7.1, test 1 and 2.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
        };
        for (seed, public, message, signature) in [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
                "",
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
            ),
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
                "72",
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            ),
        ] {
            let key = SecretKey::new("Test", &hex(seed).try_into().unwrap()).unwrap();
            assert_eq!(key.public().to_string(), format!("{PREFIX}{}", STANDARD.encode(hex(public))));
            assert_eq!(key.sign(&hex(message)), STANDARD.encode(hex(signature)));
            assert!(key.public().verifies(&hex(message), &key.sign(&hex(message))));
            assert!(!key.public().verifies(b"other", &key.sign(&hex(message))));
        }
    }

    #[test]
    fn files_read_back_and_never_tell_the_secret() {
        let key = SecretKey::new("Anna", &[7; 32]).unwrap();
        let again = SecretKey::from_json(&key.to_json()).unwrap();
        assert_eq!((again.public(), again.name.as_str()), (key.public(), "Anna"));
        assert!(!format!("{key:?}").contains(&STANDARD.encode([7; 32])));
        let secret = STANDARD.encode([7; 32]);
        let bent = key.to_json().replace("\"secret\": \"", "\"secret\": [\"");
        assert!(!SecretKey::from_json(&bent).unwrap_err().to_string().contains(&secret));
        let other = key
            .to_json()
            .replace(&key.public().to_string(), &SecretKey::new("B", &[8; 32]).unwrap().public().to_string());
        assert_eq!(
            SecretKey::from_json(&other).unwrap_err().to_string(),
            "not a key: its public half is another key's"
        );
        assert!(SecretKey::new("a\nb", &[7; 32]).is_err() && SecretKey::new(" ", &[7; 32]).is_err());
    }

    #[test]
    fn a_ring_has_everybody_once() {
        let one = |name: &str, seed: u8| Keyed {
            name: name.to_owned(),
            key: SecretKey::new("x", &[seed; 32]).unwrap().public(),
            role: Role::Approver,
        };
        let ring = KeyRing::new(vec![one("Anna", 1), one("Bo", 2)]).unwrap();
        assert_eq!(KeyRing::from_json(&ring.to_json()).unwrap(), ring);
        assert_eq!(ring.of(&one("x", 2).key).unwrap().name, "Bo");
        for twice in [vec![one("Anna", 1), one("Bo", 1)], vec![one("Anna", 1), one("Anna", 2)]] {
            assert!(KeyRing::new(twice).unwrap_err().to_string().contains("twice"));
        }
        for name in ["", " ", "a\nb", " Anna", &"x".repeat(65)] {
            assert!(KeyRing::new(vec![one(name, 1)]).unwrap_err().to_string().contains("is no name"), "{name}");
        }
        for text in ["", "{}", "[]", r#"{"format":"loka-keys","version":2,"people":[]}"#] {
            assert!(KeyRing::from_json(text).unwrap_err().to_string().starts_with("not a list of keys: "), "{text}");
        }
        let zero = format!("{PREFIX}{}", STANDARD.encode([0; 32]));
        assert!(zero.parse::<PublicKey>().is_err(), "a weak key signs anything");
    }
}
