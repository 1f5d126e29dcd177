//! A view as a picture file: takes what a person asked for, has the pane drawn once, gives PNG or SVG bytes.

mod png;
mod svg;

pub use png::{crop, encode};
pub use svg::{escaped, svg};

use egui::{Rect, epaint::ClippedShape};

use crate::layout::Pane;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureFormat {
    Png,
    Svg,
}

impl PictureFormat {
    pub fn ending(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Svg => "svg",
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Png => "PNG",
            Self::Svg => "SVG",
        }
    }
}

/// A picture that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PictureRequest {
    pub pane: Pane,
    pub path: String,
    pub format: PictureFormat,
}

/// A pane as it was drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    pub rect: Rect,
    pub shapes: Vec<ClippedShape>,
}

/// The picture on its way: asked for, drawn in the next frame, then written.
#[derive(Clone, Debug, Default)]
pub struct PictureState {
    pub wanted: Option<PictureRequest>,
    pub drawn: Option<Drawn>,
    /// A screenshot was asked for, of this part of the window.
    pub shooting: Option<Rect>,
}

impl PictureState {
    /// This frame's shapes of that pane are to be kept.
    pub fn wants_shapes_of(&self, pane: Pane) -> bool {
        self.wanted.as_ref().is_some_and(|wanted| wanted.format == PictureFormat::Svg && wanted.pane == pane)
    }
}
