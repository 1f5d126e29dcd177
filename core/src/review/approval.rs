//! A signed statement that somebody stands for a plan: takes the plan's digest and a key, gives a line of its file that
//! anybody can check, anywhere.

use serde::{Deserialize, Serialize};

use super::{PublicKey, Role, SecretKey};
use crate::model::{Moment, canonical_json};

/// Before what is signed: no other thing that is signed with the same key can be taken for an approval.
const CONTEXT: &[u8] = b"loka-approval-v1\0";

/// What is signed.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Of the plan.
    pub digest: String,
    /// Of what had been said of it until then.
    pub review_digest: String,
    pub name: String,
    /// As the server knew it, or the person says; a list of keys says it for certain.
    pub role: Role,
    pub at: Moment,
    pub note: String,
}

/// A statement with its signature, flat as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approval {
    pub digest: String,
    pub review_digest: String,
    pub name: String,
    pub role: Role,
    pub at: Moment,
    pub note: String,
    pub key: PublicKey,
    /// Ed25519 over the canonical JSON of everything else here, Base64.
    pub signature: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    #[error("the signature is not of this key, or something was changed after it was signed")]
    Signature,
}

impl Approval {
    pub fn sign(statement: Statement, with: &SecretKey) -> Self {
        let Statement { digest, review_digest, name, role, at, note } = statement;
        // Files hold seconds: what is signed must read back.
        let at = Moment::of_seconds(at.0.div_euclid(1000));
        let (key, signature) = (with.public(), String::new());
        let mut approval = Self { digest, review_digest, name, role, at, note, key, signature };
        approval.signature = with.sign(&approval.signed_bytes());
        approval
    }

    /// Of its own key, as it was signed. Whose that key is, and whether it may, is another question.
    pub fn check(&self) -> Result<(), ApprovalError> {
        let genuine = self.key.verifies(&self.signed_bytes(), &self.signature);
        if genuine { Ok(()) } else { Err(ApprovalError::Signature) }
    }

    fn signed_bytes(&self) -> Vec<u8> {
        // Plain data has JSON.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            map.remove("signature");
        }
        [CONTEXT, canonical_json(&value).as_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_changed_is_noticed() {
        let key = SecretKey::new("Anna", &[3; 32]).unwrap();
        let statement = Statement {
            digest: "sha256:aa".to_owned(),
            review_digest: "sha256:bb".to_owned(),
            name: "Anna".to_owned(),
            role: Role::Approver,
            at: Moment::of_seconds(1_795_176_000),
            note: String::new(),
        };
        let approval = Approval::sign(statement, &key);
        approval.check().unwrap();
        let text = serde_json::to_string(&approval).unwrap();
        assert_eq!(serde_json::from_str::<Approval>(&text).unwrap(), approval);
        serde_json::from_str::<Approval>(&text).unwrap().check().unwrap();
        for (from, to) in [
            ("sha256:aa", "sha256:ab"),
            ("sha256:bb", "sha256:ba"),
            ("Anna", "Anne"),
            ("approver", "owner"),
            ("12:00:00", "12:00:01"),
            ("\"note\":\"\"", "\"note\":\"x\""),
        ] {
            assert!(text.contains(from), "{from}");
            let changed: Approval = serde_json::from_str(&text.replacen(from, to, 1)).unwrap();
            assert_eq!(changed.check(), Err(ApprovalError::Signature), "{from}");
        }
        let other = SecretKey::new("Bo", &[4; 32]).unwrap();
        let taken = Approval { key: other.public(), ..approval.clone() };
        assert!(taken.check().is_err(), "another's name on it");
        assert!(Approval { signature: String::new(), ..approval }.check().is_err());
    }
}
