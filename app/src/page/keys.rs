//! Keys between the browser and the workbench: what the browser owns never reaches the canvas, whose event loop would
//! swallow it; what the workbench takes never reaches the browser.

use std::{cell::Cell, rc::Rc};

use egui::{Key, Modifiers};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};
use web_sys::{AddEventListenerOptions, KeyboardEvent, WheelEvent};

use super::dom::window;
use crate::commands::{Owner, owner_of};

/// Before the canvas sees them.
pub(super) fn install(ctx: &egui::Context, over_chart: Rc<Cell<bool>>) -> Result<(), JsValue> {
    let ctx = ctx.clone();
    let key = Closure::<dyn Fn(KeyboardEvent)>::new(move |event: KeyboardEvent| decide(&ctx, &event));
    let wheel = Closure::<dyn Fn(WheelEvent)>::new(move |event: WheelEvent| {
        // Over a chart it zooms the chart, as on a map; elsewhere the browser's text.
        if event.ctrl_key() && !over_chart.get() {
            event.stop_immediate_propagation();
        }
    });
    let options = AddEventListenerOptions::new();
    options.set_capture(true);
    let window = window()?;
    for (name, listener) in [("keydown", key.as_ref()), ("wheel", wheel.as_ref())] {
        let listener = listener.unchecked_ref();
        window.add_event_listener_with_callback_and_add_event_listener_options(name, listener, &options)?;
    }
    // For as long as the page is there.
    key.forget();
    wheel.forget();
    Ok(())
}

fn decide(ctx: &egui::Context, event: &KeyboardEvent) {
    let text = event.key();
    let Some(key) = Key::from_name(&text) else { return };
    // AltGr comes as Ctrl and Alt together, with the character that it makes.
    if event.ctrl_key() && event.alt_key() && text.chars().count() == 1 {
        return;
    }
    let mac = ctx.os().is_mac();
    let modifiers = Modifiers {
        alt: event.alt_key(),
        ctrl: event.ctrl_key(),
        shift: event.shift_key(),
        mac_cmd: mac && event.meta_key(),
        command: if mac { event.meta_key() } else { event.ctrl_key() },
    };
    match owner_of(key, modifiers, ctx.text_edit_focused()) {
        Owner::Workbench => event.prevent_default(),
        Owner::Field => {}
        Owner::Browser => event.stop_immediate_propagation(),
    }
}
