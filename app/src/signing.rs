//! Takes the key of a person's file and what is to be signed, gives the approval. The key stays in this process.

use loka_core::review::{Approval, SecretKey, Statement};

/// In the name of the key: a server that knows the person by another refuses it, and so does this.
pub fn signed(statement: Statement, key: &SecretKey) -> Result<Approval, String> {
    if key.name != statement.name {
        let (of, you) = (&key.name, &statement.name);
        return Err(format!("the key is {of}'s, and you are {you} here: sign with a key of that name (loka key new)"));
    }
    Ok(Approval::sign(statement, key))
}

/// A key as its file holds it.
pub fn key_of(text: &str) -> Result<SecretKey, String> {
    SecretKey::from_json(text).map_err(|error| error.to_string())
}
