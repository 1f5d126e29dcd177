//! What the window remembers between runs: takes the JSON of a store, gives settings and a line about what could
//! not be used; and the way back. No part of it can keep the window from opening.

mod recent;
mod settings_store;

pub use recent::{Recent, RecentFile};
pub use settings_store::SettingsStore;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{layout::Layout, theme::Ground};

/// Of the JSON. A newer one is left as it is, and not used.
const VERSION: u64 = 1;

/// Sizes that a window can have: beyond them a file was edited by hand.
const WINDOW: std::ops::RangeInclusive<f32> = 100.0..=20_000.0;
const TEXT_SIZE: std::ops::RangeInclusive<f32> = 0.5..=3.0;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// `None`: by the window's width.
    pub layout: Option<Layout>,
    pub ground: Ground,
    /// Times the size that the system asks for; `None`: that size.
    pub text_size: Option<f32>,
    pub recent: Recent,
    /// Width and height in the system's points.
    pub window: Option<[f32; 2]>,
    /// The tour is not offered any more.
    pub tour_seen: bool,
}

impl Settings {
    pub fn to_json(&self) -> String {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Result<Value, serde_json::Error>| {
            // A layout is plain data, and cannot fail to be written.
            fields.insert(name.to_owned(), value.unwrap_or(Value::Null));
        };
        put("version", Ok(VERSION.into()));
        put("layout", serde_json::to_value(&self.layout));
        put("ground", serde_json::to_value(self.ground));
        put("text_size", serde_json::to_value(self.text_size));
        put("recent", serde_json::to_value(&self.recent));
        put("window", serde_json::to_value(self.window));
        put("tour_seen", Ok(self.tour_seen.into()));
        format!("{:#}\n", Value::Object(fields))
    }

    /// Every part by itself: a broken one does not take the others with it. With the problem, in a line.
    pub fn from_json(text: &str) -> (Self, Option<String>) {
        let fields = match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return (Self::default(), Some("not an object".to_owned())),
            Err(error) => return (Self::default(), Some(error.to_string())),
        };
        match fields.get("version").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => return (Self::default(), Some(format!("version {other} is not known"))),
            None => return (Self::default(), Some("no version".to_owned())),
        }
        let mut broken = Vec::new();
        let layout: Option<Layout> = part(&fields, "layout", &mut broken);
        let checked = layout.clone().and_then(Layout::checked);
        if layout.is_some() && checked.is_none() {
            broken.push("layout");
        }
        let settings = Self {
            layout: checked,
            ground: part(&fields, "ground", &mut broken),
            text_size: part::<Option<f32>>(&fields, "text_size", &mut broken).filter(|size| TEXT_SIZE.contains(size)),
            recent: part::<Recent>(&fields, "recent", &mut broken).cut(),
            window: part::<Option<[f32; 2]>>(&fields, "window", &mut broken)
                .filter(|size| size.iter().all(|side| WINDOW.contains(side))),
            tour_seen: part(&fields, "tour_seen", &mut broken),
        };
        let problem = (!broken.is_empty()).then(|| format!("unusable: {}", broken.join(", ")));
        (settings, problem)
    }
}

/// A part that is missing is at its default; one that is broken too, and named.
fn part<T: DeserializeOwned + Serialize + Default>(
    fields: &Map<String, Value>,
    name: &'static str,
    broken: &mut Vec<&'static str>,
) -> T {
    let Some(value) = fields.get(name) else { return T::default() };
    serde_json::from_value(value.clone()).unwrap_or_else(|_| {
        broken.push(name);
        T::default()
    })
}

#[cfg(test)]
mod tests {
    use loka_core::session::FileKind;

    use super::*;
    use crate::layout::Pane;

    fn some() -> Settings {
        let mut layout = Layout::default();
        layout.close(Pane::Drift);
        let mut recent = Recent::default();
        recent.add("/a/b.trace.safetensors", FileKind::Trace);
        Settings {
            layout: Some(layout),
            ground: Ground::Light,
            text_size: Some(1.2),
            recent,
            window: Some([900.0, 700.0]),
            tour_seen: true,
        }
    }

    #[test]
    fn what_is_written_comes_back() {
        let settings = some();
        let (back, problem) = Settings::from_json(&settings.to_json());
        assert_eq!(problem, None);
        assert_eq!(back.to_json(), settings.to_json());
        assert!(!back.layout.unwrap().is_open(Pane::Drift));
    }

    #[test]
    fn a_broken_part_keeps_the_others() {
        let text = some().to_json().replace("\"drift\"", "\"log\"").replace("900.0", "\"wide\"");
        let (back, problem) = Settings::from_json(&text);
        assert_eq!(problem.as_deref(), Some("unusable: layout, window"));
        assert!(back.layout.is_none() && back.window.is_none());
        assert_eq!((back.ground, back.recent.files().len()), (Ground::Light, 1));
    }

    #[test]
    fn broken_files_are_a_line_each() {
        for (text, line) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("[]", "not an object"),
            ("{}", "no version"),
            ("{\"version\": 7}", "version 7 is not known"),
        ] {
            assert_eq!(Settings::from_json(text).1.as_deref(), Some(line));
        }
        let (back, problem) = Settings::from_json("{\"version\": 1, \"text_size\": 900, \"window\": [1, 1]}");
        assert_eq!((back.text_size, back.window, problem), (None, None, None), "out of range is the default");
    }
}
