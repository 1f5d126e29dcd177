//! Takes a pattern of Python's `fnmatch` (on a system whose file names have a case), gives whether it matches a
//! name as a whole: `*`, `?`, `[abc]`, `[a-c]`, `[!abc]`, with Python's reading of hyphens and brackets.

use super::lookup::Matcher;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Char(char),
    Any,
    Star,
    /// Ranges, both ends in them.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// A compiled pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<Token>);

/// A pattern that matches this name alone.
pub fn escape_glob(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '[' | '*' | '?' => escaped.extend(['[', c, ']']),
            c => escaped.push(c),
        }
    }
    escaped
}

impl Glob {
    /// Every text is a pattern.
    pub fn new(text: &str) -> Self {
        let chars: Vec<char> = text.chars().collect();
        let (mut tokens, mut at) = (Vec::new(), 0);
        while let Some(c) = chars.get(at).copied() {
            at += 1;
            match c {
                '*' if tokens.last() == Some(&Token::Star) => {}
                '*' => tokens.push(Token::Star),
                '?' => tokens.push(Token::Any),
                '[' => match closing(&chars, at) {
                    Some(end) => {
                        tokens.push(class(&chars[at..end]));
                        at = end + 1;
                    }
                    None => tokens.push(Token::Char('[')),
                },
                c => tokens.push(Token::Char(c)),
            }
        }
        Self(tokens)
    }

    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut token, mut at, mut star) = (0, 0, None);
        loop {
            match self.0.get(token) {
                Some(Token::Star) => {
                    star = Some((token + 1, at));
                    token += 1;
                    continue;
                }
                Some(single) if name.get(at).is_some_and(|c| is_single(single, *c)) => {
                    (token, at) = (token + 1, at + 1);
                    continue;
                }
                None if at == name.len() => return true,
                _ => {}
            }
            // The last star takes one character more.
            match star {
                Some((behind, from)) if from < name.len() => {
                    star = Some((behind, from + 1));
                    (token, at) = (behind, from + 1);
                }
                _ => return false,
            }
        }
    }

    /// The one name that it matches, if it has no wildcard.
    pub fn literal(&self) -> Option<String> {
        self.0
            .iter()
            .map(|token| match token {
                Token::Char(c) => Some(*c),
                Token::Class { negated: false, ranges } => match ranges.as_slice() {
                    [(low, high)] if low == high => Some(*low),
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }
}

impl Matcher for Glob {
    fn matches(&self, name: &str) -> bool {
        self.matches(name)
    }

    fn literals(&self) -> Option<Vec<String>> {
        self.literal().map(|name| vec![name])
    }
}

fn is_single(token: &Token, c: char) -> bool {
    match token {
        Token::Char(wanted) => *wanted == c,
        Token::Any => true,
        Token::Class { negated, ranges } => ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated,
        Token::Star => false,
    }
}

/// Where the bracket closes; one directly behind `[` or `[!` is a member.
fn closing(chars: &[char], from: usize) -> Option<usize> {
    let mut at = from;
    if chars.get(at) == Some(&'!') {
        at += 1;
    }
    if chars.get(at) == Some(&']') {
        at += 1;
    }
    (at..chars.len()).find(|at| chars[*at] == ']')
}

/// What stands between the brackets.
fn class(stuff: &[char]) -> Token {
    let parts = parts(stuff);
    let negated = parts.first().is_some_and(|first| first.first() == Some(&'!'));
    let mut ranges = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let skipped = usize::from(negated && number == 0);
        ranges.extend(part.iter().skip(skipped).map(|c| (*c, *c)));
        if let (Some(low), Some(high)) = (part.last(), parts.get(number + 1).and_then(|next| next.first())) {
            ranges.push((*low, *high));
        }
    }
    Token::Class { negated, ranges }
}

/// Split at the hyphens that make ranges; ranges that run backwards are gone, with both their ends.
fn parts(stuff: &[char]) -> Vec<Vec<char>> {
    if !stuff.contains(&'-') {
        return vec![stuff.to_vec()];
    }
    let mut parts: Vec<Vec<char>> = Vec::new();
    let (mut from, mut at) = (0, if stuff.first() == Some(&'!') { 2 } else { 1 });
    while let Some(hyphen) = (at..stuff.len()).find(|at| stuff[*at] == '-') {
        parts.push(stuff[from..hyphen].to_vec());
        from = hyphen + 1;
        at = hyphen + 3;
    }
    match (stuff[from.min(stuff.len())..].to_vec(), parts.last_mut()) {
        (rest, Some(last)) if rest.is_empty() => last.push('-'),
        (rest, _) => parts.push(rest),
    }
    for number in (1..parts.len()).rev() {
        if parts[number - 1].last() > parts[number].first() {
            let joined = parts.remove(number);
            parts[number - 1].pop();
            parts[number - 1].extend(joined.into_iter().skip(1));
        }
    }
    parts
}

#[cfg(test)]
#[path = "fnmatch_tests.rs"]
mod tests;
