//! An arrangement as text: takes a layout, gives JSON, and back.

use std::path::Path;

use super::Layout;

impl Layout {
    /// For [`Self::from_json`].
    pub fn to_json(&self) -> String {
        // Plain data, which cannot fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Takes the stored layout of a window, or settings that have one. `path`: for what is wrong with it.
    pub fn from_json(path: &Path, text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{}: {why}", path.display());
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        let layout = value.get("layout").unwrap_or(&value).clone();
        let layout: Self = serde_json::from_value(layout).map_err(|error| wrong(&format!("not a layout: {error}")))?;
        layout.checked().ok_or_else(|| wrong("not a layout: it lacks a view, or has one twice"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_read_alone_or_of_settings() {
        let layout = Layout::default();
        let alone = layout.to_json();
        for text in [alone.clone(), format!("{{\"version\": 1, \"layout\": {alone}}}")] {
            assert_eq!(Layout::from_json(Path::new("l.json"), &text), Ok(layout.clone()));
        }
    }
}
