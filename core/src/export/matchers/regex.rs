//! Takes a regular expression of Python's `re`, as far as exports have them, gives where it matches a name:
//! characters, escapes, `.`, anchors, groups of alternatives, and `*`, `+`, `?` behind a single character.

use std::collections::BTreeSet;

/// Not what exports have; nobody should guess what it would match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern has '{0}', which is not read here")]
pub struct NotRead(pub String);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Char(char),
    /// `.`: anything but a line break.
    Any,
    /// `^` and `\A`.
    Start,
    /// `$`: the end, or before a line break at the end.
    Dollar,
    /// `\Z`.
    End,
    Group(Vec<Vec<Node>>),
    Repeat {
        what: Box<Node>,
        least: usize,
        most: usize,
    },
}

/// A compiled pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Node>);

/// `re.escape`.
pub fn escape_regex(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if "\t\n\u{b}\u{c}\r #$&()*+-.?[\\]^{|}~".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

impl Pattern {
    pub fn new(text: &str) -> Result<Self, NotRead> {
        let chars: Vec<char> = text.chars().collect();
        let mut reader = PatternReader { chars: &chars, at: 0 };
        let mut alternatives = reader.alternatives(0)?;
        match reader.peek() {
            Some(c) => Err(NotRead(c.to_string())),
            None if alternatives.len() == 1 => Ok(Self(alternatives.pop().unwrap_or_default())),
            None => Ok(Self(vec![Node::Group(alternatives)])),
        }
    }

    /// `re.search`.
    pub fn search(&self, name: &str) -> bool {
        let chars: Vec<char> = name.chars().collect();
        (0..=chars.len()).any(|from| run(&self.0, &chars, from, &mut |_| true))
    }

    /// `re.match`.
    pub fn matches_start(&self, name: &str) -> bool {
        let chars: Vec<char> = name.chars().collect();
        run(&self.0, &chars, 0, &mut |_| true)
    }

    /// `re.fullmatch`.
    pub fn fullmatch(&self, name: &str) -> bool {
        let chars: Vec<char> = name.chars().collect();
        run(&self.0, &chars, 0, &mut |end| end == chars.len())
    }

    /// Everywhere, in characters, that a match from the beginning may end.
    pub fn ends(&self, chars: &[char]) -> BTreeSet<usize> {
        let mut ends = BTreeSet::new();
        run(&self.0, chars, 0, &mut |end| {
            ends.insert(end);
            false
        });
        ends
    }

    /// The names that it matches where it is anchored by itself: `\A(?:a|b)\Z`, and `a\Z` where `from_start`.
    pub fn literals(&self, from_start: bool, to_end: bool) -> Option<Vec<String>> {
        let mut nodes = self.0.as_slice();
        match nodes {
            [Node::Start, rest @ ..] => nodes = rest,
            _ if from_start => {}
            _ => return None,
        }
        match nodes {
            [rest @ .., Node::End] => nodes = rest,
            _ if to_end => {}
            _ => return None,
        }
        match nodes {
            [Node::Group(alternatives)] => alternatives.iter().map(|nodes| word(nodes)).collect(),
            nodes => word(nodes).map(|word| vec![word]),
        }
    }

    /// Its characters, `None` for each that may be any, and whether it ends in `\Z`; of a pattern of only these.
    pub fn shape(&self) -> Option<(Vec<Option<char>>, bool)> {
        let (nodes, ended) = match self.0.as_slice() {
            [rest @ .., Node::End] => (rest, true),
            nodes => (nodes, false),
        };
        let shape: Option<Vec<Option<char>>> = nodes
            .iter()
            .map(|node| match node {
                Node::Char(c) => Some(Some(*c)),
                Node::Any => Some(None),
                _ => None,
            })
            .collect();
        shape.map(|shape| (shape, ended))
    }
}

fn word(nodes: &[Node]) -> Option<String> {
    nodes.iter().map(|node| if let Node::Char(c) = node { Some(*c) } else { None }).collect()
}

/// Calls `found` with each end of a match until it says that it is the right one.
fn run(nodes: &[Node], text: &[char], mut at: usize, found: &mut dyn FnMut(usize) -> bool) -> bool {
    for (number, node) in nodes.iter().enumerate() {
        let rest = &nodes[number + 1..];
        match node {
            Node::Group(alternatives) => {
                return alternatives.iter().any(|nodes| run(nodes, text, at, &mut |end| run(rest, text, end, found)));
            }
            Node::Repeat { what, least, most } => {
                let there = text[at..].iter().take(*most).take_while(|c| is_single(what, **c)).count();
                return (*least..=there).rev().any(|count| run(rest, text, at + count, found));
            }
            Node::Start if at == 0 => {}
            Node::End if at == text.len() => {}
            Node::Dollar if at == text.len() || (at + 1 == text.len() && text[at] == '\n') => {}
            Node::Start | Node::End | Node::Dollar => return false,
            node => match text.get(at) {
                Some(c) if is_single(node, *c) => at += 1,
                _ => return false,
            },
        }
    }
    found(at)
}

fn is_single(node: &Node, c: char) -> bool {
    match node {
        Node::Char(wanted) => *wanted == c,
        Node::Any => c != '\n',
        _ => false,
    }
}

struct PatternReader<'a> {
    chars: &'a [char],
    at: usize,
}

/// Groups within groups that are read.
const DEEPEST: usize = 8;

impl PatternReader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek();
        self.at += 1;
        c
    }

    fn alternatives(&mut self, depth: usize) -> Result<Vec<Vec<Node>>, NotRead> {
        let mut alternatives = vec![Vec::new()];
        while let Some(c) = self.peek() {
            match c {
                ')' => break,
                '|' => {
                    self.at += 1;
                    alternatives.push(Vec::new());
                }
                _ => {
                    let node = self.repeated(depth)?;
                    if let Some(sequence) = alternatives.last_mut() {
                        sequence.push(node);
                    }
                }
            }
        }
        Ok(alternatives)
    }

    fn repeated(&mut self, depth: usize) -> Result<Node, NotRead> {
        let node = self.single(depth)?;
        let (least, most) = match self.peek() {
            Some('*') => (0, usize::MAX),
            Some('+') => (1, usize::MAX),
            Some('?') => (0, 1),
            _ => return Ok(node),
        };
        self.at += 1;
        // Lazy and possessive ones, and repeats of groups, are other rules.
        match self.peek() {
            Some(c @ ('*' | '+' | '?' | '{')) => Err(NotRead(c.to_string())),
            _ if !matches!(node, Node::Char(_) | Node::Any) => Err(NotRead("a repeated group".to_owned())),
            _ => Ok(Node::Repeat { what: Box::new(node), least, most }),
        }
    }

    fn single(&mut self, depth: usize) -> Result<Node, NotRead> {
        match self.next() {
            Some('.') => Ok(Node::Any),
            Some('^') => Ok(Node::Start),
            Some('$') => Ok(Node::Dollar),
            Some('(') if depth < DEEPEST => self.group(depth),
            Some('\\') => match self.next() {
                Some('A') => Ok(Node::Start),
                Some('Z') => Ok(Node::End),
                // Letters and digits mean something behind a backslash.
                Some(c) if !c.is_ascii_alphanumeric() => Ok(Node::Char(c)),
                c => Err(NotRead(format!("\\{}", c.map(String::from).unwrap_or_default()))),
            },
            Some(c @ ('[' | '{' | '*' | '+' | '?' | '(')) => Err(NotRead(c.to_string())),
            Some(c) => Ok(Node::Char(c)),
            None => Err(NotRead("an end".to_owned())),
        }
    }

    fn group(&mut self, depth: usize) -> Result<Node, NotRead> {
        if self.peek() == Some('?') {
            self.at += 1;
            if self.next() != Some(':') {
                return Err(NotRead("(?".to_owned()));
            }
        }
        let alternatives = self.alternatives(depth + 1)?;
        match self.next() {
            Some(')') => Ok(Node::Group(alternatives)),
            _ => Err(NotRead("(".to_owned())),
        }
    }
}

#[cfg(test)]
#[path = "regex_tests.rs"]
mod tests;
