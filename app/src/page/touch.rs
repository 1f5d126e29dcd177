//! A screen that is touched rather than pointed at: tells egui before the first touch. It learns of touch from a touch,
//! and lists that do not know of it yet are not scrolled by a finger: the first gesture would do nothing.

use egui::{Context, Event, Pos2, RawInput, TouchDeviceId, TouchId, TouchPhase};
use wasm_bindgen::JsValue;

use super::dom::window;

/// Where a finger is what one points with; a mouse beside a touch screen keeps its own ways.
pub(super) fn install(ctx: &Context) -> Result<(), JsValue> {
    if window()?.match_media("(pointer: coarse)")?.is_some_and(|query| query.matches()) {
        ctx.add_plugin(Announcement { made: false });
    }
    Ok(())
}

/// Made with the first frame: the end of a touch that never was.
struct Announcement {
    made: bool,
}

impl egui::Plugin for Announcement {
    fn debug_name(&self) -> &'static str {
        "LoKA's touch screen"
    }

    fn input_hook(&mut self, _: &Context, input: &mut RawInput) {
        if !std::mem::replace(&mut self.made, true) {
            input.events.push(Event::Touch {
                device_id: TouchDeviceId(0),
                id: TouchId(0),
                phase: TouchPhase::Cancel,
                pos: Pos2::ZERO,
                force: None,
            });
        }
    }
}
