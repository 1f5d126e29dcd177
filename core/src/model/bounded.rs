//! Takes a list as it comes in, gives it if it is no longer than what it can mean: a name of no characters is one byte in a
//! binary coding and fifty in memory, so bytes alone bound nothing.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};

/// For `#[serde(deserialize_with)]`, of a function that says how many.
pub fn bounded_list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
    most: usize,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Bounded { most, of: PhantomData })
}

struct Bounded<T> {
    most: usize,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "a list of at most {}", self.most)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let too_long = |num: usize| num > self.most;
        if items.size_hint().is_some_and(too_long) {
            return Err(A::Error::custom(format!("a list of more than {}", self.most)));
        }
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if too_long(list.len() + 1) {
                return Err(A::Error::custom(format!("a list of more than {}", self.most)));
            }
            list.push(item);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Names(#[serde(deserialize_with = "three")] Vec<String>);

    fn three<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
        bounded_list(deserializer, 3)
    }

    #[test]
    fn a_list_ends_where_it_means_nothing_more() {
        let json = |text: &str| serde_json::from_str::<Names>(text).map(|names| names.0.len());
        assert_eq!(json(r#"["a","b","c"]"#).unwrap(), 3);
        assert!(json(r#"["a","b","c","d"]"#).unwrap_err().to_string().contains("more than 3"));
        assert_eq!(postcard::from_bytes::<Names>(&[3, 0, 0, 0]).unwrap().0.len(), 3);
        assert!(postcard::from_bytes::<Names>(&[4, 0, 0, 0, 0]).is_err());
    }
}
