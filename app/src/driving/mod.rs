//! The window as a program sees it: takes a question, gives with the next frame what is on screen and where the session
//! stands, as plain data. Whoever drives a window has a mouse and keys of its own: nothing is clicked here.
//!
//! Without a [`Drive`] none of it runs.

mod nodes;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use egui::{Context, FullOutput, RawInput};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use nodes::Node;
pub(crate) use state::state_of;

/// One frame.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Look {
    /// Counts frames.
    pub frame: u64,
    /// Pixels of the window in one point, which places are in.
    pub pixels_per_point: f32,
    /// Of the window, in points.
    pub size: [f32; 2],
    /// What is open, decided, selected and told: see `state.rs`.
    pub state: Value,
    /// In no particular order.
    pub nodes: Vec<Node>,
}

/// Asks for frames. Clones ask the same window.
#[derive(Clone, Default)]
pub struct Drive(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    asked: bool,
    /// Told by the window while it draws the frame that answers.
    state: Option<Value>,
}

impl Drive {
    /// From now on the window answers through `told`, on the thread that draws.
    pub fn install(&self, ctx: &Context, told: impl Fn(Look) + Send + Sync + 'static) {
        ctx.add_plugin(Observer { drive: self.clone(), told: Box::new(told) });
    }

    /// The next frame is told. There may be none without [`Context::request_repaint`].
    pub fn ask(&self) {
        self.lock().asked = true;
    }

    /// Called by the window with every frame that it draws.
    pub(crate) fn tell(&self, state: impl FnOnce() -> Value) {
        let mut asked = self.lock();
        if asked.asked {
            asked.state = Some(state());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Observer {
    drive: Drive,
    told: Box<dyn Fn(Look) + Send + Sync>,
}

impl egui::Plugin for Observer {
    fn debug_name(&self) -> &'static str {
        "LoKA's driver"
    }

    /// Whoever reads screens may come and go, and turns the tree off behind itself.
    fn input_hook(&mut self, ctx: &Context, _: &mut RawInput) {
        ctx.enable_accesskit();
    }

    fn output_hook(&mut self, ctx: &Context, output: &mut FullOutput) {
        // A frame that is laid out again is not seen.
        if output.platform_output.requested_discard() {
            return;
        }
        let Some(tree) = &output.platform_output.accesskit_update else { return };
        let mut asked = self.drive.lock();
        let Some(state) = asked.state.take() else { return };
        asked.asked = false;
        drop(asked);
        (self.told)(Look {
            frame: ctx.cumulative_frame_nr(),
            pixels_per_point: output.pixels_per_point,
            size: ctx.content_rect().size().into(),
            state,
            nodes: nodes::nodes_of(tree),
        });
    }
}
