//! Deep links: takes the part of an address behind its `#`, gives what is to be selected and seen, and back. Pure; the
//! page reads and writes its address.

use loka_core::{
    model::{Gemm, KernelId, Metric, SiteId},
    session::NoticeKind,
    views::Column,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{layout::Pane, state::ViewState, window::LokaApp};

/// Seconds between two changes of the address: browsers refuse more than some hundred in half a minute.
const EVERY: f64 = 0.4;

/// Left as they are: names of sites and kernels stay readable.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/').remove(b':');

/// What an address holds. What it does not name stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Address {
    pub site: Option<SiteId>,
    /// The selected cell of that site's row.
    pub cell: Option<Column>,
    pub view: Option<Pane>,
    pub metric: Option<Metric>,
    /// One GEMM, or `Some(None)` for all of them.
    pub gemm: Option<Option<Gemm>>,
    pub filter: Option<String>,
}

impl Address {
    /// What is selected and seen now.
    pub fn of(view: &ViewState) -> Self {
        Self {
            site: view.site.clone(),
            cell: view.column.clone(),
            view: Some(view.layout.active()),
            metric: Some(view.metric),
            gemm: Some(view.gemm),
            filter: Some(view.filter.clone()),
        }
    }

    /// `text` with or without its `#`. What is not understood is passed by: a link of another version still helps.
    pub fn parse(text: &str) -> Self {
        let mut address = Self::default();
        for pair in text.trim_start_matches('#').split('&') {
            let Some((key, value)) = pair.split_once('=') else { continue };
            let value = percent_decode_str(value).decode_utf8_lossy();
            match key {
                "site" if !value.is_empty() => address.site = Some(SiteId::new(&value)),
                "cell" => address.cell = cell_of(&value),
                "view" => address.view = Pane::ALL.into_iter().find(|pane| word(*pane) == value),
                "metric" => address.metric = value.parse().ok(),
                "gemm" if value == "all" => address.gemm = Some(None),
                "gemm" => address.gemm = value.parse().ok().map(Some),
                "filter" => address.filter = Some(value.into_owned()),
                _ => {}
            }
        }
        address
    }

    /// Without the `#`; always the same for the same.
    pub fn format(&self) -> String {
        let mut pairs = Vec::new();
        let mut pair = |key: &str, value: &str| pairs.push(format!("{key}={}", utf8_percent_encode(value, ESCAPED)));
        if let Some(site) = &self.site {
            pair("site", site.as_str());
        }
        if let Some(Column { gemm, kernel }) = &self.cell {
            pair("cell", &format!("{gemm}:{kernel}"));
        }
        if let Some(view) = self.view {
            pair("view", &word(view));
        }
        if let Some(metric) = self.metric {
            pair("metric", metric.as_str());
        }
        if let Some(gemm) = self.gemm {
            pair("gemm", gemm.map_or("all", Gemm::as_str));
        }
        // An empty filter is the usual one.
        if let Some(filter) = self.filter.as_ref().filter(|filter| !filter.is_empty()) {
            pair("filter", filter);
        }
        pairs.join("&")
    }

    /// Selects and shows what it names. A site that the open trace lacks is a line.
    pub(super) fn apply(self, app: &mut LokaApp) -> Option<String> {
        let unknown = self.site.clone().filter(|site| app.session().site(site).is_none());
        let view = app.view_mut();
        if let Some(site) = self.site.filter(|_| unknown.is_none()) {
            view.select(site, None);
            (view.column, view.reveal) = (self.cell, true);
        }
        if let Some(pane) = self.view {
            view.layout.show(pane);
        }
        if let Some(metric) = self.metric {
            view.choose_metric(metric);
        }
        view.gemm = self.gemm.unwrap_or(view.gemm);
        view.filter = self.filter.unwrap_or_default();
        unknown.map(|site| format!("The address names a site that this trace does not have: {site}"))
    }
}

/// A view's name, small.
fn word(pane: Pane) -> String {
    pane.title().to_lowercase()
}

fn cell_of(text: &str) -> Option<Column> {
    let (gemm, kernel) = text.split_once(':')?;
    Some(Column { gemm: gemm.parse().ok()?, kernel: KernelId::new(kernel) })
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
            && let Some(line) = address.apply(app)
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
    use super::*;

    fn full() -> Address {
        Address {
            site: Some(SiteId::new("net/é &#?=+ %41.0")),
            cell: Some(Column { gemm: Gemm::Wgrad, kernel: KernelId::new("te/current") }),
            view: Some(Pane::Quadrant),
            metric: Some(Metric::RelL2),
            gemm: Some(Some(Gemm::Dgrad)),
            filter: Some("verdict:unsafe \"a b\" /x.*/".to_owned()),
        }
    }

    #[test]
    fn what_is_formatted_is_parsed() {
        for address in [full(), Address { gemm: Some(None), ..Address::default() }, Address::default()] {
            let text = address.format();
            assert_eq!(Address::parse(&text), address, "{text}");
            assert_eq!(Address::parse(&format!("#{text}")), address);
            assert!(
                text.chars().all(|character| character.is_ascii_graphic() && !"\"<>#".contains(character)),
                "{text}"
            );
        }
        let plain = Address { site: Some(SiteId::new("top.mlp.0")), view: Some(Pane::Heatmap), ..Address::default() };
        assert_eq!(plain.format(), "site=top.mlp.0&view=heatmap");
    }

    #[test]
    fn what_is_not_understood_is_passed_by() {
        let address = Address::parse("#view=kitchen&metric=taste&gemm=&cell=x&site=&later=1&%%%&filter=%ff%41");
        assert_eq!(address, Address { filter: Some("\u{fffd}A".to_owned()), ..Address::default() });
    }

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
