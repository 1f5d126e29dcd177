//! Deep links: takes the part of an address behind its `#`, gives what is to be selected and seen, and back.

use loka_core::{
    model::{Gemm, KernelId, Metric, SiteId},
    views::Column,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{layout::Pane, state::ViewState};

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
}

/// A view's name, small.
fn word(pane: Pane) -> String {
    pane.title().to_lowercase()
}

fn cell_of(text: &str) -> Option<Column> {
    let (gemm, kernel) = text.split_once(':')?;
    Some(Column { gemm: gemm.parse().ok()?, kernel: KernelId::new(kernel) })
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
}
