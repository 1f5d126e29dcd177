//! Takes a value whose JSON may leave fields out or hold anything (a manifest, a plan); gives it as it is to a
//! format for people, and as its JSON text to a binary one, which has no names to find fields by.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, de::DeserializeOwned, ser};

pub fn serialize<T: Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    if serializer.is_human_readable() {
        return value.serialize(serializer);
    }
    serializer.serialize_str(&serde_json::to_string(value).map_err(ser::Error::custom)?)
}

pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    if deserializer.is_human_readable() {
        return T::deserialize(deserializer);
    }
    serde_json::from_str(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}
