//! The workbench in its page: takes dropped and picked files, follows the address, tells the page how far it is.

use std::{cell::Cell, rc::Rc};

use loka_core::session::{LogKind, NoticeKind};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};

use super::{
    browser_io::{BrowserIo, Received},
    dom::{document, window},
    reached,
};
use crate::{
    executor::{MemoryFiles, is_address},
    layout::Pane,
    window::{
        LokaApp,
        alternative::{Alternative, Told},
        url_sync::{AddressStep, UrlSync},
    },
};

pub(super) struct PageApp {
    app: LokaApp,
    io: BrowserIo,
    memory: MemoryFiles,
    url_sync: UrlSync,
    /// The address changed by other hands than ours.
    moved: Rc<Cell<bool>>,
    /// The pointer is over a chart, whose zoom Ctrl and the wheel are.
    over_chart: Rc<Cell<bool>>,
    told: PageTold,
    served: bool,
    /// The trace that the address names.
    named: Option<String>,
}

/// What the page was told already.
#[derive(Default)]
struct PageTold {
    drawn: bool,
    rows: bool,
    /// As text behind the canvas.
    text: Told,
    /// The last line of the log.
    line: u64,
}

/// Behind the frame: what was drawn is shown before the browser reads so many rows.
fn put_text(html: String) -> Result<(), JsValue> {
    let put = Closure::once_into_js(move || {
        if let Some(place) = document().ok().and_then(|page| page.get_element_by_id("loka-text")) {
            place.set_inner_html(&html);
        }
    });
    window()?.set_timeout_with_callback_and_timeout_and_arguments_0(put.unchecked_ref(), 0)?;
    Ok(())
}

impl PageApp {
    pub fn new(
        app: LokaApp,
        io: BrowserIo,
        memory: MemoryFiles,
        url_sync: UrlSync,
        over_chart: Rc<Cell<bool>>,
        ctx: &egui::Context,
    ) -> Result<Self, JsValue> {
        let moved = Rc::new(Cell::new(false));
        let (flag, ctx) = (moved.clone(), ctx.clone());
        let listen = Closure::<dyn Fn()>::new(move || {
            flag.set(true);
            ctx.request_repaint();
        });
        window()?.add_event_listener_with_callback("hashchange", listen.as_ref().unchecked_ref())?;
        // For as long as the page is there.
        listen.forget();
        Ok(Self {
            app,
            io,
            memory,
            url_sync,
            moved,
            over_chart,
            told: PageTold::default(),
            served: super::served::is_served()?,
            named: None,
        })
    }

    /// Files that a person dropped or picked are read beside the frames, or sent to the server that gave the page, and
    /// opened together.
    fn take_files(&mut self, ctx: &egui::Context) {
        let dropped = ctx.input_mut(|input| std::mem::take(&mut input.raw.dropped_files));
        if !dropped.is_empty() {
            self.io.take(dropped.iter().filter_map(|file| file.web_file().cloned()).collect());
        }
        while let Some(files) = self.io.taken() {
            let mut names = Vec::new();
            for (name, taken) in files {
                let there = taken.and_then(|taken| match taken {
                    Received::Here(bytes) => self.memory.put(&name, bytes),
                    Received::Sent => Ok(()),
                });
                match there {
                    Ok(()) => names.push(name),
                    Err(line) => self.app.notify(NoticeKind::Error, line),
                }
            }
            self.app.open_all(names);
        }
    }

    fn follow_address(&mut self, ctx: &egui::Context) {
        if let (true, Ok(hash)) = (self.moved.take(), window().and_then(|window| window.location().hash())) {
            self.url_sync.go(&hash);
        }
        let now = ctx.input(|input| input.time);
        match self.url_sync.tick(&mut self.app, now) {
            AddressStep::Rest => {}
            AddressStep::Later(seconds) => ctx.request_repaint_after(std::time::Duration::from_secs_f64(seconds)),
            AddressStep::Write(text) => {
                let history = window().and_then(|window| window.history());
                let written = history
                    .and_then(|history| history.replace_state_with_url(&JsValue::NULL, "", Some(&format!("#{text}"))));
                if let Err(error) = written {
                    web_sys::console::warn_2(&"LoKA could not write the address".into(), &error);
                }
            }
        }
        if let (true, Some(trace)) = (self.served, &self.app.session().trace)
            && self.named.as_deref() != Some(&trace.path)
        {
            self.named = Some(trace.path.clone());
            if let Err(error) = super::served::name_trace(&trace.path) {
                web_sys::console::warn_2(&"LoKA could not write the address".into(), &error);
            }
        }
        self.app.view_mut().page = window().and_then(|window| window.location().href()).ok();
    }

    /// What went wrong stands in the browser's console too, where it can be copied and tests read it.
    fn tell_problems(&mut self) {
        let wrong = |kind| matches!(kind, LogKind::Warning | LogKind::Error);
        for entry in self.app.session().log().entries() {
            if entry.seq > self.told.line && wrong(entry.kind) {
                web_sys::console::warn_1(&format!("LoKA: {}", entry.text).into());
            }
            self.told.line = self.told.line.max(entry.seq);
        }
    }

    /// A file that was dropped is gone with the page that it was dropped on, unless a server has it.
    fn mark_recent(&mut self) {
        if self.served {
            return;
        }
        let gone = |path: &String| !is_address(path) && self.memory.get(path).is_none();
        let files = self.app.view().recent.files().iter().map(|file| file.path.clone());
        let missing: Vec<_> = files.filter(gone).map(|path| (path, "drop it here again".to_owned())).collect();
        self.app.view_mut().recent.mark(&missing);
    }

    /// What a screen reader finds.
    fn tell_text(&mut self, ctx: &egui::Context) {
        let now = ctx.input(|input| input.time);
        match self.app.alternative(&mut self.told.text, now) {
            Alternative::Same => {}
            Alternative::Later(seconds) => ctx.request_repaint_after(std::time::Duration::from_secs_f64(seconds)),
            Alternative::Text(html) => {
                if let Err(error) = put_text(html) {
                    web_sys::console::warn_2(&"LoKA could not write its text".into(), &error);
                }
            }
        }
    }

    fn find_chart(&self, ctx: &egui::Context) {
        let at = ctx.pointer_hover_pos();
        let over =
            |pane: Pane| self.app.view().layout.rect_of(pane).zip(at).is_some_and(|(rect, at)| rect.contains(at));
        self.over_chart.set(over(Pane::Heatmap) || over(Pane::Quadrant) || over(Pane::Frontier) || over(Pane::Graph));
    }
}

impl eframe::App for PageApp {
    fn logic(&mut self, ctx: &egui::Context, _: &mut eframe::Frame) {
        self.take_files(ctx);
        self.app.tick(ctx);
        self.follow_address(ctx);
        self.mark_recent();
        self.tell_problems();
    }

    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        self.app.draw(ui);
        self.tell_text(ui.ctx());
        self.find_chart(ui.ctx());
        if !std::mem::replace(&mut self.told.drawn, true) {
            reached("drawn");
        }
        if self.app.session().has_rows() && !std::mem::replace(&mut self.told.rows, true) {
            reached("rows");
        }
    }

    fn clear_color(&self, visuals: &egui::Visuals) -> [f32; 4] {
        self.app.clear_color(visuals)
    }
}
