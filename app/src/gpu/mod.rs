//! Pictures that are too many shapes for a painter: each is described once, drawn by a shader of ours where there
//! is one and by egui's painter where there is not, from the same cells.

mod heatmap;
mod picture;
pub mod points;

pub use eframe::wgpu::TextureFormat;
pub use heatmap::HeatmapCallback;
pub use picture::{ColumnGroup, Palette, Picture, Texel, hatch};
