//! The address bar of a page beside what its window shows: takes an address that was opened, gives one to write.

use loka_core::session::NoticeKind;

use crate::window::{LokaApp, address::Address};

/// Seconds between two changes of the address: browsers refuse more than some hundred in half a minute.
const EVERY: f64 = 0.4;

impl LokaApp {
    /// Selects and shows what it names. A site that the open trace lacks is a line.
    pub(super) fn go_to(&mut self, address: Address) -> Option<String> {
        let unknown = address.site.clone().filter(|site| self.session().site(site).is_none());
        let view = self.view_mut();
        if let Some(site) = address.site.filter(|_| unknown.is_none()) {
            view.select(site, None);
            (view.column, view.reveal) = (address.cell, true);
        }
        if let Some(pane) = address.view {
            view.layout.show(pane);
        }
        if let Some(metric) = address.metric {
            view.choose_metric(metric);
        }
        view.gemm = address.gemm.unwrap_or(view.gemm);
        view.filter = address.filter.unwrap_or_default();
        unknown.map(|site| format!("The address names a site that this trace does not have: {site}"))
    }
}

/// Keeps an address and a window the same, whichever changes.
#[derive(Debug, Default)]
pub struct UrlSync {
    /// To be shown as soon as a trace is there.
    wanted: Option<Address>,
    /// As it stands in the address bar.
    written: String,
    /// When it was written last.
    at: f64,
}

/// What a frame asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum AddressStep {
    Rest,
    /// Put this behind the `#`.
    Write(String),
    /// Look again after so many seconds.
    Later(f64),
}

impl UrlSync {
    /// The address was opened, pasted, or gone back to.
    pub fn go(&mut self, text: &str) {
        let text = text.trim_start_matches('#');
        if text != self.written {
            self.wanted = Some(Address::parse(text));
            text.clone_into(&mut self.written);
        }
    }

    /// Once a frame, after the window took its input.
    pub fn tick(&mut self, app: &mut LokaApp, now: f64) -> AddressStep {
        if app.session().trace.is_none() {
            return AddressStep::Rest;
        }
        if let Some(address) = self.wanted.take()
            && let Some(line) = app.go_to(address)
        {
            app.notify(NoticeKind::Warning, line);
        }
        let text = Address::of(app.view()).format();
        if text == self.written {
            return AddressStep::Rest;
        }
        let left = self.at + EVERY - now;
        if left > 0.0 {
            return AddressStep::Later(left);
        }
        (self.at, self.written) = (now, text.clone());
        AddressStep::Write(text)
    }
}

#[cfg(test)]
mod tests {
    use loka_core::model::SiteId;

    use super::*;

    #[test]
    fn nothing_is_written_before_a_trace_is_there() {
        let mut app = LokaApp::new(Box::new(crate::link::InProcess::new(Nothing)));
        let mut url_sync = UrlSync::default();
        url_sync.go("#site=a");
        assert_eq!(url_sync.tick(&mut app, 1.0), AddressStep::Rest);
        assert_eq!(url_sync.wanted, Some(Address { site: Some(SiteId::new("a")), ..Address::default() }));
        url_sync.go("site=a");
        assert!(url_sync.wanted.is_some(), "it is still to come");
    }

    struct Nothing;

    impl loka_core::runtime::Executor for Nothing {
        fn run(&mut self, _: loka_core::session::Effect) {}

        fn poll(&mut self) -> Option<loka_core::runtime::Report> {
            None
        }
    }
}
