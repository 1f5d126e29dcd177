//! Takes what a person typed to filter sites, gives the terms; takes a site or a column, says whether it is let
//! through. `verdict:unsafe lib:torchao module:layers.0 -head /mlp\.\d+/` reads as it is said: terms of one kind
//! are alternatives, kinds must all hold, `-` turns a term round; `loss>1e-6 k<64 wgrad.mere>.2` hold figures against
//! numbers.

use std::collections::HashSet;

use crate::model::{Gemm, Metric, ResultRow, SiteId};

use super::{Column, ReviewStanding, Snapshot, Standings, standings::low};

/// A compiled regular expression: core has no engine for them, the app brings one.
pub type Matcher = Box<dyn Fn(&str) -> bool>;

/// Why a filter cannot be used. One line for beside the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("/{pattern}/ is no regular expression: {reason}")]
    Regex { pattern: String, reason: String },
    #[error("no {key}: is called “{value}” (there are {known})")]
    Unknown { key: &'static str, value: String, known: &'static str },
    #[error("“{text}” is no number")]
    NoNumber { text: String },
}

/// A term as a menu offers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermHelp {
    pub term: &'static str,
    pub about: &'static str,
}

const fn help(term: &'static str, about: &'static str) -> TermHelp {
    TermHelp { term, about }
}

/// The terms that need no name of the trace.
pub const TERMS: [TermHelp; 18] = [
    help("verdict:fast", "A GEMM is safe and fast"),
    help("verdict:slow", "A GEMM is safe and not fast"),
    help("verdict:uncertain", "A GEMM is uncertain at best"),
    help("verdict:unsafe", "A GEMM is unsafe with every kernel"),
    help("verdict:unsafe-fast", "A GEMM would be faster, and is unsafe with every kernel"),
    help("verdict:unsafe-slow", "A GEMM is unsafe with every kernel, and not faster"),
    help("verdict:unsupported", "A GEMM has a shape that no FP8 kernel takes"),
    help("verdict:waiting", "No GEMM has been judged yet"),
    help("gemm:fprop", "The forward GEMM alone"),
    help("gemm:dgrad", "The input gradient's GEMM alone"),
    help("gemm:wgrad", "The weight gradient's GEMM alone"),
    help("loss>1e-6", "The gentlest kernel's loss cost at fprop; also error and gain"),
    help("k<64", "The shape: m, k or n"),
    help("wgrad.noise_share>.01", "A metric of the gentlest kernel in low precision, at one GEMM or at any"),
    help("is:overridden", "A kernel was chosen by hand"),
    help("is:modified", "A mod is on here"),
    help("is:problem", "The recording has a problem here"),
    help("is:selected", "Selected in the list"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WantedVerdict {
    Safe,
    Fast,
    Slow,
    Uncertain,
    Unsafe,
    UnsafeFast,
    UnsafeSlow,
    Unsupported,
    Waiting,
}

impl WantedVerdict {
    const KNOWN: &'static str =
        "fast, slow, safe, uncertain, unsafe, unsafe-fast, unsafe-slow, unsupported and waiting";

    fn read(value: &str) -> Result<Self, FilterError> {
        Ok(match value {
            "safe" => Self::Safe,
            "fast" | "safe-fast" => Self::Fast,
            "slow" | "safe-slow" => Self::Slow,
            "uncertain" => Self::Uncertain,
            "unsafe" => Self::Unsafe,
            "unsafe-fast" => Self::UnsafeFast,
            "unsafe-slow" => Self::UnsafeSlow,
            "unsupported" => Self::Unsupported,
            "waiting" => Self::Waiting,
            _ => return Err(unknown("verdict", value, Self::KNOWN)),
        })
    }

    fn is(self, standing: Option<ReviewStanding>) -> bool {
        match self {
            Self::Safe => matches!(standing, Some(ReviewStanding::Safe | ReviewStanding::SafeFast)),
            Self::Fast => standing == Some(ReviewStanding::SafeFast),
            Self::Slow => standing == Some(ReviewStanding::Safe),
            Self::Uncertain => standing == Some(ReviewStanding::Uncertain),
            Self::Unsafe => standing.is_some_and(ReviewStanding::is_unsafe),
            Self::UnsafeFast => standing == Some(ReviewStanding::UnsafeFast),
            Self::UnsafeSlow => standing == Some(ReviewStanding::UnsafeSlow),
            // Of no library: told by the table beside.
            Self::Unsupported => false,
            Self::Waiting => standing.is_none(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Overridden,
    Modified,
    Problem,
    Selected,
}

enum Term {
    Text(String),
    Regex(Matcher),
    Module(String),
    Verdict(WantedVerdict),
    Gemm(Gemm),
    Library(String),
    Is(State),
    Number(Bounded),
}

/// A figure of a site that can be held against a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    M,
    K,
    N,
    /// What sites are sorted by.
    Loss,
    Error,
    Gain,
    /// Of the gentlest kernel in low precision, at one GEMM or the worst of them.
    Metric(Option<Gemm>, Metric),
}

impl Figure {
    const KNOWN: &'static str = "m, k, n, loss, error, gain, and metrics as mere or wgrad.noise_share";

    fn read(name: &str) -> Result<Self, FilterError> {
        Ok(match name {
            "m" => Self::M,
            "k" => Self::K,
            "n" => Self::N,
            "loss" => Self::Loss,
            "error" => Self::Error,
            "gain" | "speedup" => Self::Gain,
            _ => {
                let (gemm, metric) = name.split_once('.').map_or((None, name), |(gemm, metric)| (Some(gemm), metric));
                let gemm: Option<Gemm> =
                    gemm.map(str::parse).transpose().map_err(|_| unknown("figure", name, Self::KNOWN))?;
                Self::Metric(gemm, metric.parse().map_err(|_| unknown("figure", name, Self::KNOWN))?)
            }
        })
    }
}

/// `loss>1e-6`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bounded {
    figure: Figure,
    above: bool,
    /// `>=` and `<=`.
    or_equal: bool,
    limit: f64,
}

impl Bounded {
    /// What is not known is on no side.
    fn holds(self, value: Option<f64>) -> bool {
        value.is_some_and(|value| match (self.above, self.or_equal) {
            (true, false) => value > self.limit,
            (true, true) => value >= self.limit,
            (false, false) => value < self.limit,
            (false, true) => value <= self.limit,
        })
    }
}

/// What a filter asks about sites besides their names.
#[derive(Default)]
pub struct Facts<'a> {
    pub ids: &'a [SiteId],
    pub standings: Option<&'a Standings>,
    pub(super) snapshot: Option<&'a Snapshot>,
    pub(super) overridden: HashSet<usize>,
    pub(super) modified: HashSet<usize>,
    pub(super) problems: HashSet<usize>,
    pub(super) selected: HashSet<usize>,
}

impl<'a> Facts<'a> {
    /// Names alone, with nothing known of the sites.
    pub fn names(ids: &'a [SiteId]) -> Self {
        let none = HashSet::new;
        Self {
            ids,
            standings: None,
            snapshot: None,
            overridden: none(),
            modified: none(),
            problems: none(),
            selected: none(),
        }
    }

    pub fn of(snapshot: &'a Snapshot, standings: &'a Standings, selected: impl Iterator<Item = SiteId>) -> Self {
        let index = &snapshot.index;
        let at = |id: &SiteId| index.at(id);
        let mods = &snapshot.document.mods;
        let modified = if mods.is_empty() { Vec::new() } else { (0..index.len()).collect() };
        Self {
            ids: index.ids(),
            standings: Some(standings),
            snapshot: Some(snapshot),
            overridden: snapshot.document.overrides.keys().filter_map(|(site, _)| at(site)).collect(),
            modified: modified.into_iter().filter(|site| !mods.of(&index.ids()[*site]).is_empty()).collect(),
            problems: snapshot.trace.meta.problems.iter().filter_map(|(site, _)| at(site)).collect(),
            selected: selected.filter_map(|site| at(&site)).collect(),
        }
    }

    /// A metric of the gentlest kernel in low precision, at the worst GEMM or at one: what `mere>.2` holds.
    pub fn metric(&self, gemm: Option<Gemm>, metric: Metric, site: usize) -> Option<f64> {
        self.figure(Figure::Metric(gemm, metric), site)
    }

    fn figure(&self, figure: Figure, site: usize) -> Option<f64> {
        let snapshot = self.snapshot?;
        let shape = snapshot.sites().get(site)?;
        let rank = || self.standings.map(|all| all.rank(site)).unwrap_or_default();
        let value = match figure {
            Figure::M => shape.m as f64,
            Figure::K => shape.k as f64,
            Figure::N => shape.n as f64,
            Figure::Loss => rank().loss_cost.into(),
            // Of decibels the rank is the negative.
            Figure::Error if snapshot.document.policy.metric.larger_is_better() => (-rank().error).into(),
            Figure::Error => rank().error.into(),
            Figure::Gain => rank().gain.into(),
            Figure::Metric(gemm, metric) => {
                let gentlest = |gemm: Gemm| {
                    let figure = |row: &ResultRow| row.figure(metric, snapshot.loss());
                    let errors = low(snapshot.rows_of(site, gemm)).filter_map(figure);
                    let errors = errors.map(|error| metric.on_scale(error).value).filter(|error| !error.is_nan());
                    errors.min_by(|a, b| metric.badness(*a).total_cmp(&metric.badness(*b)))
                };
                let gemms = Gemm::ALL.into_iter().filter(|of| gemm.is_none_or(|gemm| gemm == *of));
                gemms.filter_map(gentlest).max_by(|a, b| metric.badness(*a).total_cmp(&metric.badness(*b)))?
            }
        };
        Some(value).filter(|value| !value.is_nan())
    }

    fn is(&self, state: State, site: usize) -> bool {
        match state {
            State::Overridden => self.overridden.contains(&site),
            State::Modified => self.modified.contains(&site),
            State::Problem => self.problems.contains(&site),
            State::Selected => self.selected.contains(&site),
        }
    }
}

/// A filter, read and ready.
#[derive(Default)]
pub struct Filter {
    /// With `false` for those that were turned round.
    terms: Vec<(bool, Term)>,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("terms", &self.terms.len()).finish()
    }
}

impl Filter {
    /// `compile`: makes a matcher of a regular expression, or says what is wrong with it.
    pub fn read(text: &str, compile: &dyn Fn(&str) -> Result<Matcher, String>) -> Result<Self, FilterError> {
        let terms = tokens(text).into_iter().map(|token| read_term(&token, compile));
        Ok(Self { terms: terms.collect::<Result<_, _>>()? })
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// True when the answer changes with results or with what a person decides, not with names alone.
    pub fn asks_for_more_than_names(&self) -> bool {
        self.terms.iter().any(|(_, term)| !matches!(term, Term::Text(_) | Term::Regex(_) | Term::Module(_)))
    }

    pub fn asks_for_selection(&self) -> bool {
        self.terms.iter().any(|(_, term)| matches!(term, Term::Is(State::Selected)))
    }

    /// A column of the heatmap: by GEMM and library.
    pub fn shows_column(&self, column: &Column) -> bool {
        self.allows_gemm(column.gemm) && self.allows_library(column.kernel.library())
    }

    pub fn shows_site(&self, facts: &Facts<'_>, site: usize) -> bool {
        let Some(id) = facts.ids.get(site) else { return false };
        let mut modules = Choice::default();
        for (wanted, term) in &self.terms {
            let holds = match term {
                Term::Text(text) => holds(id.as_str(), text),
                Term::Regex(matches) => matches(id.as_str()),
                Term::Is(state) => facts.is(*state, site),
                Term::Number(bounded) => bounded.holds(facts.figure(bounded.figure, site)),
                Term::Module(path) => {
                    modules.take(*wanted, is_under(id.as_str(), path));
                    continue;
                }
                Term::Verdict(_) | Term::Gemm(_) | Term::Library(_) => continue,
            };
            if holds != *wanted {
                return false;
            }
        }
        modules.holds() && self.verdict_holds(facts, site)
    }

    /// Over the GEMMs and libraries that the filter leaves: one stands as asked. Without a verdict asked, a site
    /// is shown when a kernel of theirs has been judged, or nothing of the site has.
    fn verdict_holds(&self, facts: &Facts<'_>, site: usize) -> bool {
        let narrow =
            self.terms.iter().any(|(wanted, term)| *wanted && matches!(term, Term::Gemm(_) | Term::Library(_)));
        let asks = self.terms.iter().any(|(_, term)| matches!(term, Term::Verdict(_)));
        let (true, Some(standings)) = (narrow || asks, facts.standings) else { return true };
        let allowed: Vec<bool> = standings.libraries.iter().map(|library| self.allows_library(library)).collect();
        let best = |gemm: Gemm| standings.best(site, gemm, |library| allowed[library]);
        let standing: Vec<Option<ReviewStanding>> =
            Gemm::ALL.into_iter().filter(|gemm| self.allows_gemm(*gemm)).map(best).collect();
        if !asks {
            let waits = || Gemm::ALL.into_iter().all(|gemm| standings.best(site, gemm, |_| true).is_none());
            return standing.iter().any(Option::is_some) || waits();
        }
        let mut verdicts = Choice::default();
        for (wanted, term) in &self.terms {
            let Term::Verdict(verdict) = term else { continue };
            let holds = match verdict {
                WantedVerdict::Waiting => standing.iter().all(Option::is_none),
                WantedVerdict::Unsupported => {
                    let mut gemms = Gemm::ALL.into_iter().filter(|gemm| self.allows_gemm(*gemm));
                    gemms.any(|gemm| standings.is_unsupported(site, gemm))
                }
                _ => standing.iter().any(|standing| verdict.is(*standing)),
            };
            verdicts.take(*wanted, holds);
        }
        verdicts.holds()
    }

    fn allows_gemm(&self, gemm: Gemm) -> bool {
        let mut choice = Choice::default();
        for (wanted, term) in &self.terms {
            if let Term::Gemm(of) = term {
                choice.take(*wanted, *of == gemm);
            }
        }
        choice.holds()
    }

    fn allows_library(&self, library: &str) -> bool {
        let mut choice = Choice::default();
        for (wanted, term) in &self.terms {
            if let Term::Library(of) = term {
                choice.take(*wanted, library.starts_with(of.as_str()));
            }
        }
        choice.holds()
    }
}

/// Terms of one kind: any of those wanted, none of those turned round.
#[derive(Default)]
struct Choice {
    asked: bool,
    found: bool,
    refused: bool,
}

impl Choice {
    fn take(&mut self, wanted: bool, holds: bool) {
        self.asked |= wanted;
        self.found |= wanted && holds;
        self.refused |= !wanted && holds;
    }

    fn holds(&self) -> bool {
        !self.refused && (self.found || !self.asked)
    }
}

/// `text`: in lower case. Most names are, too, and no copy is made of them: there are ten thousand a key that is pressed.
fn holds(name: &str, text: &str) -> bool {
    // To the end of each, without a branch a byte: that is many bytes at once.
    let has_capitals = name.bytes().fold(false, |found, byte| found | byte.is_ascii_uppercase() | !byte.is_ascii());
    if has_capitals { name.to_lowercase().contains(text) } else { name.contains(text) }
}

/// The module itself and what is in it: `layers.1` is not in `layers.10`.
fn is_under(name: &str, path: &str) -> bool {
    name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || path.is_empty())
}

fn unknown(key: &'static str, value: &str, known: &'static str) -> FilterError {
    FilterError::Unknown { key, value: value.to_owned(), known }
}

/// One token: a regular expression, or text that may be a term.
#[derive(Debug, PartialEq, Eq)]
struct FilterToken {
    wanted: bool,
    regex: bool,
    /// Quoted as a whole: never a term.
    plain: bool,
    text: String,
}

/// Words apart, quotes and slashes together. What is not closed yet runs to the end: it is being typed.
fn tokens(text: &str) -> Vec<FilterToken> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let minus = rest.strip_prefix('-').filter(|rest| !rest.is_empty() && !rest.starts_with(' '));
        let (wanted, start) = minus.map_or((true, rest), |rest| (false, rest));
        let (token, after) = match start.strip_prefix('/') {
            Some(pattern) => regex_token(pattern),
            None => word(start),
        };
        // A minus alone is a term that is being typed.
        if !(token.text.is_empty() || wanted && token.text == "-") {
            found.push(FilterToken { wanted, ..token });
        }
        rest = after.trim_start();
    }
    found
}

/// To the next slash that ends a word: `/a/b/` asks for the path `a/b`.
fn regex_token(pattern: &str) -> (FilterToken, &str) {
    let ends = |at: usize| pattern[at + 1..].chars().next().is_none_or(char::is_whitespace);
    let end = pattern.match_indices('/').map(|(at, _)| at).find(|at| ends(*at));
    let (text, after) = end.map_or((pattern, ""), |end| (&pattern[..end], &pattern[end + 1..]));
    (FilterToken { wanted: true, regex: true, plain: false, text: text.to_owned() }, after)
}

fn word(start: &str) -> (FilterToken, &str) {
    let (mut text, mut quoted) = (String::new(), false);
    for (at, character) in start.char_indices() {
        match character {
            '"' => quoted = !quoted,
            _ if character.is_whitespace() && !quoted => {
                let plain = start.starts_with('"');
                return (FilterToken { wanted: true, regex: false, plain, text }, &start[at..]);
            }
            _ => text.push(character),
        }
    }
    (FilterToken { wanted: true, regex: false, plain: start.starts_with('"'), text }, "")
}

fn read_term(
    token: &FilterToken,
    compile: &dyn Fn(&str) -> Result<Matcher, String>,
) -> Result<(bool, Term), FilterError> {
    let text = &token.text;
    if token.regex {
        let failed = |reason| FilterError::Regex { pattern: text.clone(), reason };
        return Ok((token.wanted, Term::Regex(compile(text).map_err(failed)?)));
    }
    if let Some(term) = read_number(text).filter(|_| !token.plain) {
        return Ok((token.wanted, term?));
    }
    let term = match text.split_once(':').filter(|_| !token.plain) {
        // Half typed: everything holds until there is a value.
        Some(("verdict" | "gemm" | "lib" | "library" | "module" | "is", "")) => Term::Text(String::new()),
        Some(("verdict", value)) => Term::Verdict(WantedVerdict::read(value)?),
        Some(("gemm", value)) => {
            Term::Gemm(value.parse().map_err(|_| unknown("gemm", value, "fprop, dgrad and wgrad"))?)
        }
        Some(("lib" | "library", value)) => Term::Library(value.to_lowercase()),
        Some(("module", value)) => Term::Module(value.trim_end_matches('.').to_owned()),
        Some(("is", value)) => Term::Is(match value {
            "overridden" => State::Overridden,
            "modified" => State::Modified,
            "problem" => State::Problem,
            "selected" => State::Selected,
            _ => return Err(unknown("is", value, "overridden, modified, problem and selected")),
        }),
        // A name may hold a colon.
        _ => Term::Text(text.to_lowercase()),
    };
    let wanted = token.wanted || matches!(&term, Term::Text(text) if text.is_empty());
    Ok((wanted, term))
}

/// `None`: there is no `<` or `>` in it.
fn read_number(text: &str) -> Option<Result<Term, FilterError>> {
    let at = text.find(['<', '>'])?;
    let (name, rest) = (text[..at].to_lowercase(), &text[at + 1..]);
    let (or_equal, number) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let term = Figure::read(&name).and_then(|figure| match number.parse::<f64>() {
        Ok(limit) => Ok(Term::Number(Bounded { figure, above: text[at..].starts_with('>'), or_equal, limit })),
        // Half typed, as `1e-` is: everything holds until there is a number.
        Err(_) if number.chars().all(|character| character.is_ascii_digit() || ".e-+".contains(character)) => {
            Ok(Term::Text(String::new()))
        }
        Err(_) => Err(FilterError::NoNumber { text: number.to_owned() }),
    });
    Some(term)
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
