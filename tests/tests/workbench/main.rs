//! The workbench without a screen: clicked by accessible label, by pointer and by key; with the real engine or with a recorded
//! stream of events. One program for all: each that is linked takes what it costs to link the whole workbench.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod actions;
mod everyday;
mod from_trace_to_plan;
mod graph;
mod heatmap;
mod heatmap_gpu;
mod inspection_views;
mod keys;
mod page;
mod people;
mod pictures;
mod quadrant;
mod review;
mod site;
