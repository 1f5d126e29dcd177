//! The text of an SVG document: elements, attributes, clips, numbers, and names of any characters.

use std::fmt::Write as _;

use egui::{Color32, Rect, Stroke};

/// Writes elements one after the other.
pub(super) struct Writer {
    text: String,
    /// The clip of the group that is open.
    clip: Option<Rect>,
    num_ids: usize,
    num_omitted: usize,
}

impl Writer {
    pub fn new(rect: Rect) -> Self {
        let (x, y, width, height) = (number(rect.left()), number(rect.top()), rect.width(), rect.height());
        let (width, height) = (number(width), number(height));
        let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
        text += "<svg xmlns=\"http://www.w3.org/2000/svg\" ";
        text += &format!("width=\"{width}\" height=\"{height}\" viewBox=\"{x} {y} {width} {height}\">\n");
        Self { text, clip: None, num_ids: 0, num_omitted: 0 }
    }

    /// What follows is seen in `rect` alone.
    pub fn clip(&mut self, rect: Rect) {
        if self.clip == Some(rect) {
            return;
        }
        self.close_group();
        let id = self.id("c");
        let (x, y) = (number(rect.left()), number(rect.top()));
        let (width, height) = (number(rect.width()), number(rect.height()));
        let area = format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>");
        self.put(&format!("<clipPath id=\"{id}\">{area}</clipPath>"));
        self.put(&format!("<g clip-path=\"url(#{id})\">"));
        self.clip = Some(rect);
    }

    fn close_group(&mut self) {
        if self.clip.take().is_some() {
            self.put("</g>");
        }
    }

    /// A name that no other element has.
    pub fn id(&mut self, prefix: &str) -> String {
        self.num_ids += 1;
        format!("{prefix}{}", self.num_ids)
    }

    /// A whole element, written as it is.
    pub fn put(&mut self, element: &str) {
        self.text += element;
        self.text.push('\n');
    }

    /// Something that has no vector form.
    pub fn omit(&mut self) {
        self.num_omitted += 1;
    }

    pub fn finish(mut self) -> (String, usize) {
        self.close_group();
        self.put("</svg>");
        (self.text, self.num_omitted)
    }
}

/// To a hundredth of a point; what is no number is 0, so that the document stays readable.
pub(super) fn number(value: f32) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if matches!(text, "-0" | "") { "0".to_owned() } else { text.to_owned() }
}

/// `fill="#rrggbb"`, with its opacity where it is not whole.
pub(super) fn color(attribute: &str, color: Color32) -> String {
    if color.a() == 0 {
        return format!(" {attribute}=\"none\"");
    }
    let [r, g, b, a] = color.to_srgba_unmultiplied();
    let mut text = format!(" {attribute}=\"#{r:02x}{g:02x}{b:02x}\"");
    if a < 255 {
        let opacity = number(f32::from(a) / 255.0);
        // A String takes everything that is written to it.
        let _ = write!(text, " {attribute}-opacity=\"{opacity}\"");
    }
    text
}

/// Nothing where nothing would be drawn.
pub(super) fn stroke(stroke: Stroke) -> String {
    if stroke.width <= 0.0 || stroke.color.a() == 0 {
        return String::new();
    }
    format!("{} stroke-width=\"{}\"", color("stroke", stroke.color), number(stroke.width))
}

/// Text between tags or in an attribute, of XML or HTML. What XML cannot hold is shown as what it is: a character that cannot be
/// shown.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            other if other.is_control() => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}
